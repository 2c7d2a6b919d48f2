"""Adapter for vLLM 0.19, the newest whose wheel holds code for 7.0. References to sources are to 0.19.1."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sm70_policy.capability import SM7X, VOLTA
from sm70_policy.formats import MXFP4, NVFP4
from sm70_policy.vllm import engine, mxfp4, nvfp4, shards
from sm70_policy.vllm.hosts import v0_19_wrappers as wrappers
from sm70_policy.vllm.hosts.gates import Gate, gate_patch, why_no_kernel
from sm70_policy.vllm.hosts.targets import expect_parameters, read, unexpected
from sm70_policy.vllm.ledger import MARKER, Patch, everywhere, rebind
from sm70_policy.vllm.requests import batch_invariant_request, nvfp4_variables_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from sm70_policy.capability import Device

_QUANTIZATION = "vllm.model_executor.layers.quantization"
_UTILS = f"{_QUANTIZATION}.utils.nvfp4_utils"
_MODELOPT = f"{_QUANTIZATION}.modelopt"
_SCHEMES = f"{_QUANTIZATION}.compressed_tensors.schemes"
_W4A4 = f"{_SCHEMES}.compressed_tensors_w4a4_nvfp4"
_W4A16 = f"{_SCHEMES}.compressed_tensors_w4a16_nvfp4"
_MX = f"{_SCHEMES}.compressed_tensors_w4a16_mxfp4"
_SOURCES = "compressed_tensors/schemes"

_SELECTOR = "nvfp4-selector"
_SCHEME_SELECTOR = "nvfp4-w4a16-selector"
_MX_SELECTOR = "mxfp4-selector"

_ALGORITHMS = ["FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "NVFP4", "MXFP8", "MIXED_PRECISION"]
_WEIGHT_ONLY_ALGORITHM = "W4A16_NVFP4"
_FROZEN = "the suite drops vLLM 0.19, which gets no more releases"


class Host:
    """vLLM 0.19."""

    versions = "0.19.x"

    def device(self) -> Device | None:
        """The device of this process' platform; None for platforms that the suite has nothing for."""
        return engine.first_device()

    def patches(self) -> tuple[Patch, ...]:
        """The ledger's patches, in the order in which they are applied."""
        return (
            *_backend_patches(),
            *_scheme_patches("nvfp4-w4a16", _W4A16, "CompressedTensorsW4A16Fp4", _nvfp4_scheme, (25, 92, 94)),
            *_scheme_patches("mxfp4", _MX, "CompressedTensorsW4A16Mxfp4", _mxfp4_scheme, (36, 89, 91)),
            shards.patch(
                "modelopt",
                _MODELOPT,
                "ModelOptNvFp4LinearMethod",
                "modelopt.py:1153",
                attribute="backend",
                requires=_SELECTOR,
            ),
            shards.patch(
                "compressed-tensors",
                _W4A4,
                "CompressedTensorsW4A4Fp4",
                f"{_SOURCES}/compressed_tensors_w4a4_nvfp4.py:88",
                attribute="backend",
                requires=_SELECTOR,
            ),
            shards.patch(
                "compressed-tensors-w4a16",
                _W4A16,
                "CompressedTensorsW4A16Fp4",
                f"{_SOURCES}/compressed_tensors_w4a16_nvfp4.py:81",
                attribute=wrappers.KERNEL,
                requires=_SCHEME_SELECTOR,
            ),
            *(gate_patch(gate) for gate in _GATES),
            _algorithm_patch(),
        )


HOST = Host()

_GATES = (
    Gate(
        "modelopt",
        NVFP4,
        _MODELOPT,
        "ModelOptNvFp4Config",
        75,
        VOLTA,
        _SELECTOR,
        "modelopt.py:1014, config/vllm.py:511",
    ),
    Gate(
        "compressed-tensors",
        NVFP4,
        _W4A4,
        "CompressedTensorsW4A4Fp4",
        75,
        VOLTA,
        _SELECTOR,
        f"{_SOURCES}/compressed_tensors_w4a4_nvfp4.py:31, compressed_tensors.py:758",
    ),
    Gate(
        "compressed-tensors-w4a16",
        NVFP4,
        _W4A16,
        "CompressedTensorsW4A16Fp4",
        75,
        VOLTA,
        _SCHEME_SELECTOR,
        f"{_SOURCES}/compressed_tensors_w4a16_nvfp4.py:29, compressed_tensors.py:758",
    ),
    Gate(
        "compressed-tensors",
        MXFP4,
        _MX,
        "CompressedTensorsW4A16Mxfp4",
        80,
        SM7X,
        _MX_SELECTOR,
        f"{_SOURCES}/compressed_tensors_w4a16_mxfp4.py:40, compressed_tensors.py:758",
    ),
)

_nvfp4_scheme = partial(
    wrappers.wrap_scheme,
    family=nvfp4.FAMILY,
    make=wrappers.Sm70NvFp4LinearKernel,
    request=nvfp4_variables_request,
)
_mxfp4_scheme = partial(
    wrappers.wrap_scheme,
    family=mxfp4.FAMILY,
    make=wrappers.Sm70MxFp4LinearKernel,
    request=batch_invariant_request,
)


def _backend_patches() -> tuple[Patch, ...]:
    """The three functions that choose, load and run; imported by name wherever an NVFP4 layer is built."""
    load = _replace(
        "nvfp4-loader",
        (_UTILS,),
        "convert_to_nvfp4_linear_kernel_format",
        wrappers.wrap_convert,
        ["backend", "layer"],
        why="A facade of the suite stands where vLLM keeps a member of its enumeration, and this function "
        "would take it for a member that needs no preparation",
        upstream="model_executor/layers/quantization/utils/nvfp4_utils.py:130",
    )
    call = _replace(
        "nvfp4-call",
        (_UTILS,),
        "apply_nvfp4_linear",
        wrappers.wrap_apply,
        ["backend", "layer", "x", "bias"],
        why="The layer's facade runs it; vLLM's function knows the members of its enumeration alone",
        upstream="model_executor/layers/quantization/utils/nvfp4_utils.py:176",
    )
    choose = _replace(
        _SELECTOR,
        (_UTILS,),
        "select_nvfp4_linear_backend",
        wrappers.wrap_select,
        [],
        why="vLLM chooses among its own kernels, and on 7.0 finds none. The wrapper is for all devices, "
        "because an explicit request must work everywhere; it passes calls through unless the policy wants "
        "them",
        upstream="model_executor/layers/quantization/utils/nvfp4_utils.py:39",
        requires=(load.name, call.name),
    )
    return load, call, choose


def _scheme_patches(
    name: str, module: str, owner: str, wrap: Callable[..., Any], lines: tuple[int, int, int]
) -> tuple[Patch, ...]:
    """Those of a weight-only scheme of compressed-tensors, which calls Marlin directly.

    Args:
        name: Start of the patches' names.
        module: Where the scheme is.
        owner: The scheme.
        wrap: Wraps its `__init__`.
        lines: Where the scheme is built, loaded and run in vLLM's file.
    """
    source = f"{_SOURCES}/{module.rpartition('.')[2]}.py"
    load = _replace(
        f"{name}-loader",
        (module,),
        "prepare_fp4_layer_for_marlin",
        wrappers.wrap_prepare,
        ["layer", "input_dtype"],
        why="The scheme gives every weight to Marlin; one that the suite serves goes to its facade",
        upstream=f"{source}:{lines[1]}",
        spread=False,
    )
    call = _replace(
        f"{name}-call",
        (module, owner),
        "apply_weights",
        wrappers.wrap_scheme_apply,
        ["self", "layer", "x", "bias"],
        why="The scheme runs every layer with Marlin; one that the suite serves is run by its facade",
        upstream=f"{source}:{lines[2]}",
        spread=False,
    )
    choose = _replace(
        f"{name}-selector",
        (module, owner),
        "__init__",
        wrap,
        ["self"],
        why="The scheme chooses nothing: it has Marlin alone. The choice is made where it is built, since "
        "the engine's configuration is current there and no longer when weights are loaded",
        upstream=f"{source}:{lines[0]}",
        requires=(load.name, call.name),
        spread=False,
    )
    return load, call, choose


def _replace(
    name: str,
    path: tuple[str, ...],
    attribute: str,
    wrap: Callable[[Any, str], Any],
    parameters: list[str],
    *,
    why: str,
    upstream: str,
    requires: tuple[str, ...] = (),
    spread: bool = True,
) -> Patch:
    """An entry that wraps a function.

    Args:
        name: Its name.
        path: Module, and class in it if any, that holds the function.
        attribute: The function's name there.
        wrap: Takes the function and the patch's name, and returns the wrapper.
        parameters: Those of the function that the wrapper was written for.
        why: See `Patch`.
        upstream: See `Patch`.
        requires: See `Patch`.
        spread: Whether modules that imported the function by name get the wrapper as well.
    """

    def check() -> None:
        expect_parameters(read(*path, attribute), attribute, parameters)

    def perform() -> None:
        original = read(*path, attribute)
        wrapper = wrap(original, name)
        if spread:
            rebind(original, wrapper, attribute)
        else:
            setattr(read(*path), attribute, wrapper)

    return Patch(
        name=name,
        target=".".join((*path, attribute)),
        why=why,
        upstream=upstream,
        remove_when=_FROZEN,
        against=everywhere,
        read=partial(read, *path, attribute),
        check=check,
        perform=perform,
        requires=requires,
    )


class _Algorithms(list[str]):
    """A list that can carry the mark of a patch."""


def _algorithm_patch() -> Patch:
    name = "modelopt-w4a16-nvfp4"

    def check() -> None:
        found = read(_MODELOPT, "QUANT_ALGOS")
        if found != _ALGORITHMS:
            raise unexpected(f"QUANT_ALGOS == {found}", f"{_ALGORITHMS}")

    def perform() -> None:
        extended = _Algorithms([*_ALGORITHMS, _WEIGHT_ONLY_ALGORITHM])
        setattr(extended, MARKER, name)
        read(_MODELOPT).QUANT_ALGOS = extended

    return Patch(
        name=name,
        target=f"{_MODELOPT}.QUANT_ALGOS",
        why="Weight-only NVFP4 checkpoints of ModelOpt are younger than this release, which refuses their "
        "name. They hold what NVFP4 checkpoints hold but for the scale of activations, which the suite's "
        "kernels do not use",
        upstream="modelopt.py:107, 350",
        remove_when=_FROZEN,
        against=_why_unknown_algorithm_stays,
        read=partial(read, _MODELOPT, "QUANT_ALGOS"),
        check=check,
        perform=perform,
        requires=(_SELECTOR,),
    )


def _why_unknown_algorithm_stays(device: Device) -> str | None:
    if not device.is_sm7x:
        return f"vLLM's own kernels on {device} may read the missing scale"
    return why_no_kernel(NVFP4, device)
