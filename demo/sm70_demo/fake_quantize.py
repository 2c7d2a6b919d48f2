"""FP16 checkpoint whose linear weights are the NVFP4 ones, decoded here from codes and scales.

This decoder is written from the definition of the format and shares no code with the library that packed the
weights, nor with the suite: it is the independent side of the comparison.
"""

import math
import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sm70_demo.folders import STAMP_FILE, Stamp, build_folder, read_stamp
from sm70_demo.tensor_file import list_tensors, read_tensor

FORMAT_VERSION = 1
BLOCK = 16  # weights along K that share one E4M3 scale

PACKED = ".weight_packed"
SCALE = ".weight_scale"
GLOBAL_SCALE = ".weight_global_scale"
UNUSED_SUFFIXES = (SCALE, GLOBAL_SCALE, ".input_global_scale")

E4M3_BIAS = 7
E4M3_MANTISSA_BITS = 3
E2M1_BIAS = 1
E2M1_MANTISSA_BITS = 1


def decode_float(code: int, exponent_bits: int, mantissa_bits: int, bias: int) -> float:
    """Return the value of a small float: sign, exponent, mantissa from the top bit down.

    Exponent 0 holds the subnormal values.
    """
    mantissa = code & ((1 << mantissa_bits) - 1)
    exponent = (code >> mantissa_bits) & ((1 << exponent_bits) - 1)
    sign = -1.0 if code >> (mantissa_bits + exponent_bits) else 1.0
    if exponent == 0:
        return sign * math.ldexp(mantissa, 1 - bias - mantissa_bits)
    return sign * math.ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits)


def decode_e2m1(code: int) -> float:
    """Return the value of a 4-bit E2M1 code: 0 to 6 in eight steps, then the same with a minus sign."""
    return decode_float(code, 2, E2M1_MANTISSA_BITS, E2M1_BIAS)


def decode_e4m3(code: int) -> float:
    """Return the value of an 8-bit E4M3 code; 0x7F and 0xFF are NaN, there are no infinities."""
    if code & 0x7F == 0x7F:
        return math.nan
    return decode_float(code, 4, E4M3_MANTISSA_BITS, E4M3_BIAS)


E2M1_VALUES = np.array([decode_e2m1(code) for code in range(16)], dtype=np.float32)
E4M3_VALUES = np.array([decode_e4m3(code) for code in range(256)], dtype=np.float32)


def dequantize(
    packed: npt.NDArray[np.uint8], scale: npt.NDArray[np.uint8], divisor: float
) -> npt.NDArray[np.float32]:
    """Return the weights (N, K) in float32 of NVFP4 codes.

    `packed` is (N, K/2) with the even column in the low nibble; `scale` holds the E4M3 bytes (N, K/16);
    `divisor` is the checkpoint's global scale, by which the block scales are divided. Raises ValueError
    where the shapes do not fit.
    """
    rows, half = packed.shape
    if scale.shape != (rows, 2 * half // BLOCK) or (2 * half) % BLOCK:
        raise ValueError(f"codes {packed.shape} need scales {(rows, 2 * half // BLOCK)}, not {scale.shape}")
    codes = np.stack([packed & 0xF, packed >> 4], axis=-1).reshape(rows, 2 * half)
    scales = E4M3_VALUES[scale] / np.float32(divisor)
    weights: npt.NDArray[np.float32] = E2M1_VALUES[codes] * np.repeat(scales, BLOCK, axis=1)
    return weights


def write_fake_quantized(nvfp4: Path, fp16: Path, folder: Path) -> None:
    """Write into `folder` the decoded weights of `nvfp4` with the config and tokenizer of `fp16`."""
    from safetensors.numpy import save_file

    entries = list_tensors(nvfp4)
    weights: dict[str, npt.NDArray[np.float16]] = {}
    for name, entry in entries.items():
        if name.endswith(PACKED):
            stem = name.removesuffix(PACKED)
            packed = read_tensor(entry).astype(np.uint8)
            scale = read_tensor(entries[stem + SCALE]).astype(np.uint8)
            divisor = float(read_tensor(entries[stem + GLOBAL_SCALE]).astype(np.float32).reshape(()))
            weights[stem + ".weight"] = dequantize(packed, scale, divisor).astype(np.float16)
        elif not name.endswith(UNUSED_SUFFIXES):
            weights[name] = read_tensor(entry).astype(np.float16)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for path in fp16.iterdir():
        if path.suffix in {".json", ".jinja"} and path.name != STAMP_FILE:
            shutil.copy2(path, folder / path.name)


def fake_quantized_stamp(nvfp4: Path) -> Stamp:
    """Return what identifies the fake-quantized checkpoint: everything that identifies its NVFP4 source."""
    source = read_stamp(nvfp4)
    if source is None:
        raise FileNotFoundError(f"{nvfp4} is not a finished checkpoint of the demo")
    return {
        **{f"source_{key}": value for key, value in source.items()},
        "kind": "fake",
        "writer": FORMAT_VERSION,
    }


def ensure_fake_quantized(nvfp4: Path, fp16: Path, target: Path) -> bool:
    """Make the fake-quantized checkpoint at `target` if it is not there; returns True if written now."""
    stamp = fake_quantized_stamp(nvfp4)
    return build_folder(target, stamp, lambda folder: write_fake_quantized(nvfp4, fp16, folder))
