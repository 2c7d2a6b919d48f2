"""Packed weight layouts. Each lives in one Python file beside the CUDA header that reads it."""
