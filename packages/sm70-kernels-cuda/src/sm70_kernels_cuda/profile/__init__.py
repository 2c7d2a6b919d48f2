"""What the machine code of the strip kernels costs, as data for models of speed."""
