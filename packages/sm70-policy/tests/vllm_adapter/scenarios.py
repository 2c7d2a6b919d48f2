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
from vllm_adapter.hosts_under_test import HOST

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

LOADED = {("suite", 70), ("suite", 75), ("suite", 90), ("bare", 75)}
"""Modes and capabilities for which weights are loaded as well; the others differ in their routes alone."""


def attempt(action: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """The result, or `ErrorType: message`."""
    try:
        return action(*arguments, **keywords)
    except Exception as error:  # noqa: BLE001 - the tests look at what came out
        return f"{type(error).__name__}: {error}"


def engine_config(**additional: Any) -> Any:
    """A vLLM configuration of one engine."""
    return _engine_config({}, additional)


def _engine_config(keywords: dict[str, Any], additional: dict[str, Any]) -> Any:
    from vllm.config import DeviceConfig, VllmConfig

    return VllmConfig(device_config=DeviceConfig(device="cpu"), additional_config=additional, **keywords)


@contextlib.contextmanager
def asking_for(backend: str) -> Iterator[Any]:
    """An engine whose user asks for one of vLLM's own kernels."""
    with HOST.asking_for(backend) as keywords:
        yield _engine_config(keywords, {})


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
    return HOST.name_of(HOST.kernel_of(build(config, source, activations=activations)))


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
        "quant_algo": "NVFP4",
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


def minimums() -> dict[str, Any]:
    """The minimum capability of every quantization method and of every scheme of compressed-tensors."""
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS, get_quantization_config
    from vllm.model_executor.layers.quantization.compressed_tensors import schemes

    found = {name: attempt(get_quantization_config, name) for name in QUANTIZATION_METHODS}
    found |= {name: getattr(schemes, name) for name in schemes.__all__}
    owners: dict[str, Any] = {name: item for name, item in found.items() if isinstance(item, type)}
    return {name: attempt(owner.get_min_capability) for name, owner in owners.items()}


def on_another_card(capability: int) -> str:
    """Kernel of a layer in a worker whose own card is the second one, and not like the first."""
    import torch
    from vllm.platforms import current_platform
    from vllm.platforms.interface import DeviceCapability

    first = current_platform.get_device_capability()
    cards = {0: first, 1: DeviceCapability(*divmod(capability, 10))}
    with (
        mock.patch.object(
            type(current_platform),
            "get_device_capability",
            staticmethod(lambda device_id=0: cards[device_id]),
        ),
        mock.patch.object(torch.cuda, "is_initialized", return_value=True),
        mock.patch.object(torch.cuda, "current_device", return_value=1),
    ):
        return str(attempt(kernel_name, engine_config(), "compressed-tensors", activations=False))


def patched_functions() -> dict[str, list[int]]:
    """Identities of everything the suite may have replaced, wherever it was imported by name."""
    import vllm

    from sm70_policy.vllm import hosts

    modules = [module for name, module in sorted(sys.modules.items()) if name.startswith("vllm.")]
    return {
        patch.name: [
            id(patch.read()),
            *(id(vars(module).get(patch.target.rpartition(".")[2])) for module in modules),
        ]
        for patch in hosts.find_host(vllm.__version__).patches()
    }


def drift(mode: str) -> None:
    """Make vLLM differ from what the adapter expects, as a newer version might."""
    from vllm.model_executor.layers.quantization import modelopt

    if mode == "drifted-gate":
        modelopt.ModelOptNvFp4Config.get_min_capability = classmethod(lambda cls: 80)
    if mode == "drifted-selector":
        HOST.change_selector()


def start(mode: str) -> None:
    """Set up the process: packages as `mode` says, the plug-in, one-rank parallel groups."""
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel

    from sm70_policy import registry
    from vllm_adapter import reference_provider

    if mode != "installed":
        found = reference_provider.registry_with(*reference_provider.kernels_of(mode))
        registry.installed = lambda: found  # type: ignore[assignment]
    drift(mode)
    with set_current_vllm_config(engine_config()), tempfile.TemporaryDirectory() as folder:
        store = f"file://{folder}/store"
        init_distributed_environment(1, 0, store, local_rank=0, backend="gloo")
        initialize_model_parallel(1, 1)
    if mode != "stock":
        from sm70_policy.vllm import plugin

        plugin.register()


def selections() -> dict[str, Any]:
    """Routes under every kind of request."""
    backends = ("marlin", "emulation")
    found: dict[str, Any] = {"default": routes(engine_config())}
    for backend in backends:
        with asking_for(backend) as config:
            found[f"backend-{backend}"] = routes(config)
    found["requested"] = routes(engine_config(sm70_nvfp4={"enabled": True}))
    found["refused"] = routes(engine_config(sm70_nvfp4={"enabled": False}))
    found["misspelled"] = routes(engine_config(sm70_nvfp4={"enable": True}))
    found["foreign"] = routes(engine_config(other_plugin={"enable": True}))
    with disabled("Sm70NvFp4LinearKernel"):
        found["facade-disabled"] = routes(engine_config())
    with mock.patch.dict(os.environ, {"VLLM_BATCH_INVARIANT": "1"}):
        found["batch-invariant"] = routes(engine_config())
    return found


def run(mode: str, folder: Path, capability: int) -> dict[str, Any]:
    """Everything that the tests ask of one process."""
    start(mode)
    from vllm_adapter import installed_scenarios, loading, mxfp4_scenarios

    if mode == "mxfp4":
        return mxfp4_scenarios.run()
    if mode == "installed":
        return installed_scenarios.run()
    outcome: dict[str, Any] = {
        "routes": selections(),
        "gate": attempt(gate, folder),
        "minimums": minimums(),
        "on another card": {card: on_another_card(card) for card in (70, 80)},
    }
    if mode == "stock":
        outcome["mxfp4 routes"] = mxfp4_scenarios.routes()
        if not HOST.emulates:
            outcome["emulation"] = loading.emulation_error()
    else:
        outcome["ledger"] = ledger_state()
        before = patched_functions()
        from sm70_policy.vllm import plugin

        plugin.register()
        outcome["second-register-changes-nothing"] = before == patched_functions()
    if (mode, capability) in LOADED:
        outcome["loading"] = loading.run(folder, capability)
    return outcome


if __name__ == "__main__":
    fake_cuda.install(int(sys.argv[1]))
    print(json.dumps(run(sys.argv[2], Path(sys.argv[3]), int(sys.argv[1]))))  # noqa: T201 - the parent reads it
