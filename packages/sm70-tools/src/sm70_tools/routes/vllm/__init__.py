"""The part of `sm70 routes` that runs inside vLLM's Python code, in a process of its own for each card."""
