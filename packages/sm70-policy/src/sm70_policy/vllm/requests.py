"""What the user asked of vLLM itself: options and variables that name one of its own kernels."""

from __future__ import annotations

from sm70_policy.vllm.facade import Request

_EMULATION = "emulation"


def linear_backend_request(quantization: str) -> Request:
    """The request of a vLLM with `--linear-backend`.

    Args:
        quantization: vLLM's name for the kind of layer, such as `nvfp4_w4a16`.
    """
    from vllm import envs
    from vllm.model_executor.kernels import linear

    backend = str(linear._get_linear_backend(quantization=quantization))  # noqa: SLF001
    overrules = ""
    if backend != "auto":
        overrules = f"--linear-backend is {backend}"
    elif envs.VLLM_BATCH_INVARIANT:
        overrules = "VLLM_BATCH_INVARIANT is set"
    # For results that do not depend on the batch vLLM picks its emulation as well.
    runs_anywhere = backend == _EMULATION or bool(envs.VLLM_BATCH_INVARIANT)
    return Request(overrules, runs_anywhere, f"--linear-backend {_EMULATION}")


def nvfp4_variables_request() -> Request:
    """The request of a vLLM that chooses its NVFP4 kernel by environment variables.

    None of the choices runs on every card. The emulation of 0.19.1 would, but it takes block scales for
    swizzled that it has not swizzled, and its results are wrong.
    """
    from vllm import envs

    if envs.VLLM_USE_FBGEMM:
        return Request("VLLM_USE_FBGEMM is set")
    if envs.VLLM_USE_NVFP4_CT_EMULATIONS:
        return Request("VLLM_USE_NVFP4_CT_EMULATIONS is set, whose results are wrong in this release")
    if envs.VLLM_NVFP4_GEMM_BACKEND is not None:
        return Request(f"VLLM_NVFP4_GEMM_BACKEND is {envs.VLLM_NVFP4_GEMM_BACKEND}")
    return batch_invariant_request()


def batch_invariant_request() -> Request:
    """The request of a vLLM that has one kernel for a kind of layer and no option to choose another."""
    from vllm import envs

    return Request("VLLM_BATCH_INVARIANT is set" if envs.VLLM_BATCH_INVARIANT else "")
