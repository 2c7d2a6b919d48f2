"""Demo: a real model, quantized to NVFP4, served by vLLM with the suite, compared with its FP16 original."""
