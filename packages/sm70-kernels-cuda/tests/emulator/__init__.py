"""A CPU emulator for CUDA kernels: checked memory, barriers and warp collectives. See README.md."""
