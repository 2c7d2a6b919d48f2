"""How a checkpoint would run on a card: per layer the kernel and the reasons, and what fits into memory."""
