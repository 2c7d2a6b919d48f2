"""Compiling the kernels: used by the build hook, and by tests that need another build of the same sources."""
