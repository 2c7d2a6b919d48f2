"""FP16 checkpoint to NVFP4 with the `compressed-tensors` library: E2M1 codes, E4M3 scales, weights only."""

import importlib.metadata
import shutil
from pathlib import Path
from typing import Any

from sm70_demo.folders import STAMP_FILE, Stamp, build_folder, read_stamp

FORMAT_VERSION = 1
BLOCK = 16
PRESET = "NVFP4A16"
FORMAT = "nvfp4-pack-quantized"

# vLLM fuses these into one layer and by itself keeps one global scale for it: by default all parts share one.
FUSED_GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


def fused_names(name: str) -> list[str]:
    """Return the names of the modules that vLLM fuses with `name`, itself included."""
    parent, _, leaf = name.rpartition(".")
    for group in FUSED_GROUPS:
        if leaf in group:
            return [f"{parent}.{part}" for part in group]
    return [name]


def set_scales(model: Any, *, separate: bool) -> int:  # noqa: ANN401 - a transformers model
    """Fill the block and global scales of every linear with a quantization scheme; returns how many.

    With `separate` every projection has a global scale of its own, also where vLLM fuses it with others.
    """
    import torch
    from compressed_tensors.quantization import QuantizationStatus
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    modules = dict(model.named_modules())
    count = 0
    for name, module in modules.items():
        scheme = getattr(module, "quantization_scheme", None)
        if scheme is None or not hasattr(module, "weight_scale"):
            continue
        peaks = [
            modules[part].weight.detach().float().abs().max()
            for part in ([name] if separate else fused_names(name))
        ]
        peak = torch.stack(peaks).max()
        global_scale = generate_gparam(-peak, peak)
        weight = module.weight.detach().float()
        blocks = weight.view(weight.shape[0], -1, BLOCK)
        scale, _ = calculate_qparams(
            blocks.amin(-1), blocks.amax(-1), scheme.weights, global_scale=global_scale
        )
        module.weight_global_scale.data.copy_(global_scale)
        module.weight_scale.data.copy_(scale.to(module.weight_scale.dtype))
        module.quantization_status = QuantizationStatus.FROZEN
        count += 1
    return count


def write_nvfp4(fp16: Path, folder: Path, *, separate: bool) -> None:
    """Quantize the checkpoint `fp16` and write it into `folder` with its config and tokenizer.

    Raises RuntimeError where the library found no linear to quantize.
    """
    import torch
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import (
        QuantizationConfig,
        apply_quantization_config,
        preset_name_to_scheme,
    )
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(fp16, dtype=torch.float16)
    scheme = preset_name_to_scheme(PRESET, ["Linear"])
    config = QuantizationConfig(
        config_groups={"group_0": scheme},
        ignore=["lm_head"],
        format=FORMAT,
        quantization_status="initialized",
    )
    apply_quantization_config(model, config)
    if set_scales(model, separate=separate) == 0:
        raise RuntimeError(f"{fp16}: no linear layer took the quantization scheme {PRESET}")
    compressor = ModelCompressor.from_pretrained_model(model, quantization_format=FORMAT)
    # The library compiles its packing function; for one short run the compiler takes longer than the packing.
    with torch.compiler.set_stance("force_eager"):
        compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(folder)
    for path in fp16.iterdir():
        if path.suffix in {".json", ".jinja"} and path.name not in {STAMP_FILE, "config.json"}:
            shutil.copy2(path, folder / path.name)


def nvfp4_stamp(fp16: Path, *, separate: bool) -> Stamp:
    """Return what identifies the NVFP4 checkpoint: its source, the library's version and this writer's."""
    source = read_stamp(fp16)
    if source is None:
        raise FileNotFoundError(f"{fp16} is not a finished checkpoint of the demo")
    library = importlib.metadata.version("compressed-tensors")
    return {
        **{f"source_{key}": value for key, value in source.items()},
        "kind": "nvfp4 with separate scales" if separate else "nvfp4",
        "compressed_tensors": library,
        "writer": FORMAT_VERSION,
    }


def ensure_nvfp4(fp16: Path, target: Path, *, separate: bool = False) -> bool:
    """Make the NVFP4 checkpoint at `target` if it is not there; returns True where it was written now."""
    return build_folder(
        target,
        nvfp4_stamp(fp16, separate=separate),
        lambda folder: write_nvfp4(fp16, folder, separate=separate),
    )
