"""Runs the adapter inside one process whose platform is fixed, and prints what happened as JSON.

vLLM's platform belongs to the process, so the tests start one process per compute capability and mode:
`python -m vllm_adapter.scenarios 70 suite FOLDER`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from vllm_adapter import fake_cuda

TINY_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 128,
    "torch_dtype": "float16",
}


def attempt(action: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """The result, or `ErrorType: message`."""
    try:
        return action(*arguments, **keywords)
    except Exception as error:  # noqa: BLE001 - the tests look at what came out
        return f"{type(error).__name__}: {error}"


def engine_config(backend: str = "auto", **additional: Any) -> Any:
    """A vLLM configuration of one engine."""
    from vllm.config import DeviceConfig, KernelConfig, VllmConfig

    return VllmConfig(
        device_config=DeviceConfig(device="cpu"),
        kernel_config=KernelConfig(linear_backend=backend),
        additional_config=additional,
    )


@contextlib.contextmanager
def disabled(*names: str) -> Iterator[None]:
    """`VLLM_DISABLED_KERNELS` for a while."""
    with mock.patch.dict(os.environ, {"VLLM_DISABLED_KERNELS": ",".join(names)}):
        yield


def build(config: Any, source: str, *, activations: bool, **keywords: Any) -> Any:
    """A fused q/k/v layer of an engine."""
    from vllm.config import set_current_vllm_config

    from vllm_adapter import models

    with set_current_vllm_config(config):
        return models.qkv(models.CONFIGS[source](activations=activations), **keywords)


def kernel_name(config: Any, source: str, *, activations: bool) -> str:
    """Class name of the kernel that a layer of an engine gets."""
    from vllm_adapter import models

    return type(models.kernel_of(build(config, source, activations=activations))).__name__


def routes(config: Any) -> dict[str, str]:
    """Class name of the kernel that each kind of checkpoint gets, or the error."""
    from vllm_adapter import models

    return {
        f"{source}/{'w4a4' if activations else 'w4a16'}": attempt(
            kernel_name, config, source, activations=activations
        )
        for source in models.CONFIGS
        for activations in (False, True)
    }


def tiny_engine(folder: Path) -> Any:
    """The configuration of an engine for a ModelOpt checkpoint, made as vLLM's front end makes it."""
    from vllm.engine.arg_utils import EngineArgs

    quantization = {
        "quant_method": "modelopt",
        "quant_algo": "W4A16_NVFP4",
        "kv_cache_quant_algo": None,
        "group_size": 16,
        "exclude_modules": ["lm_head"],
        "ignore": ["lm_head"],
        "producer": {"name": "modelopt", "version": "0.40"},
    }
    model = folder / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps({**TINY_LLAMA, "quantization_config": quantization}))
    arguments = EngineArgs(
        model=str(model), skip_tokenizer_init=True, dtype="float16", max_model_len=128, enforce_eager=True
    )
    return arguments.create_engine_config()


def gate(folder: Path) -> str:
    """Whether vLLM's front end lets the checkpoint pass: `VllmConfig`, or the error."""
    return type(tiny_engine(folder)).__name__


def ledger_state() -> dict[str, tuple[str, str]]:
    """Status and reason of every patch."""
    import vllm

    from sm70_policy.vllm import hosts, ledger

    return {
        entry.patch.name: (str(entry.status), entry.reason)
        for entry in ledger.entries(hosts.find_host(vllm.__version__))
    }


def patched_functions() -> list[int]:
    """Identities of everything the suite may have replaced."""
    from vllm.model_executor.kernels import linear
    from vllm.model_executor.layers.quantization import modelopt
    from vllm.model_executor.layers.quantization.compressed_tensors.schemes import (
        compressed_tensors_w4a4_nvfp4 as compressed,
    )

    scheme = compressed.CompressedTensorsW4A4Fp4
    return [
        id(linear.init_nvfp4_linear_kernel),
        id(modelopt.init_nvfp4_linear_kernel),
        id(compressed.init_nvfp4_linear_kernel),
        id(modelopt.ModelOptNvFp4Config.get_min_capability.__func__),
        id(scheme.get_min_capability.__func__),
        id(scheme.process_weights_after_loading),
        id(modelopt.ModelOptLinearMethod.process_weights_after_loading),
    ]


def drift(mode: str) -> None:
    """Make vLLM differ from what the adapter expects, as a newer version might."""
    from vllm.model_executor.kernels import linear
    from vllm.model_executor.layers.quantization import modelopt

    if mode == "drifted-gate":
        modelopt.ModelOptNvFp4Config.get_min_capability = classmethod(lambda cls: 80)
    if mode == "drifted-selector":
        linear.init_nvfp4_linear_kernel = lambda use_a16=False, shape=None: None


def start(mode: str) -> None:
    """Set up the process: packages as `mode` says, the plug-in, one-rank parallel groups."""
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel

    from sm70_policy import registry
    from vllm_adapter import reference_provider

    kernels = reference_provider.kernels_of(mode)
    found = reference_provider.registry_with(*kernels)
    registry.installed = lambda: found  # type: ignore[assignment]
    drift(mode)
    with set_current_vllm_config(engine_config()), tempfile.TemporaryDirectory() as folder:
        store = f"file://{folder}/store"
        init_distributed_environment(1, 0, store, local_rank=0, backend="gloo")
        initialize_model_parallel(1, 1)
    if mode not in {"stock", "mxfp4-stock"}:
        from sm70_policy.vllm import plugin

        plugin.register()


def selections() -> dict[str, Any]:
    """Routes under every kind of request."""
    backends = ("marlin", "emulation")
    found: dict[str, Any] = {"default": routes(engine_config())}
    for backend in backends:
        found[f"backend-{backend}"] = routes(engine_config(backend))
    found["requested"] = routes(engine_config(sm70_nvfp4={"enabled": True}))
    found["refused"] = routes(engine_config(sm70_nvfp4={"enabled": False}))
    found["misspelled"] = routes(engine_config(sm70_nvfp4={"enable": True}))
    found["foreign"] = routes(engine_config(other_plugin={"enable": True}))
    with disabled("Sm70NvFp4LinearKernel"):
        found["facade-disabled"] = routes(engine_config())
    with mock.patch.dict(os.environ, {"VLLM_BATCH_INVARIANT": "1"}):
        found["batch-invariant"] = routes(engine_config())
    return found


def run(mode: str, folder: Path) -> dict[str, Any]:
    """Everything that the tests ask of one process."""
    start(mode)
    if mode.startswith("mxfp4"):
        from vllm_adapter import mxfp4_scenarios

        return mxfp4_scenarios.run(with_suite=mode == "mxfp4")
    outcome: dict[str, Any] = {"routes": selections(), "gate": attempt(gate, folder)}
    if mode != "stock":
        outcome["ledger"] = ledger_state()
        before = patched_functions()
        from sm70_policy.vllm import plugin

        plugin.register()
        outcome["second-register-changes-nothing"] = before == patched_functions()
    if mode in {"suite", "bare"}:
        from vllm_adapter import loading

        outcome["loading"] = loading.run(folder)
    return outcome


if __name__ == "__main__":
    fake_cuda.install(int(sys.argv[1]))
    print(json.dumps(run(sys.argv[2], Path(sys.argv[3]))))  # noqa: T201 - the parent reads it
