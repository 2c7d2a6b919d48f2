"""An explanation as JSON, for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sm70_policy.verdict import Rejection

if TYPE_CHECKING:
    from sm70_policy.route import KernelVerdict
    from sm70_tools.explain.explanation import Explanation, LayerRoute
    from sm70_tools.explain.memory import MemoryEstimate

SCHEMA = "sm70-explain/1"


def to_json(explanation: Explanation) -> dict[str, Any]:
    """Build the document; every layer is listed."""
    device = explanation.device
    return {
        "schema": SCHEMA,
        "model": explanation.model,
        "model_type": explanation.model_type,
        "quantization": explanation.quantization,
        "device": {"name": device.name, "capability": str(device.sm), "memory_bytes": device.memory_bytes},
        "tp": explanation.tp,
        "layers": [_layer(route) for route in explanation.routes],
        "memory": _memory(explanation.memory),
        "served": not explanation.unserved,
        "fits": explanation.memory.fits,
    }


def _layer(route: LayerRoute) -> dict[str, Any]:
    layer = route.layer
    return {
        "name": layer.name,
        "split": str(layer.split),
        "n": layer.n,
        "k": layer.k,
        "shards": list(layer.shards),
        "format": layer.format or "float16",
        "status": str(route.status),
        "kernel": route.kernel,
        "bytes": route.nbytes,
        "verdicts": [_verdict(item) for item in route.verdicts],
    }


def _verdict(item: KernelVerdict) -> dict[str, Any]:
    if not isinstance(item.verdict, Rejection):
        return {"kernel": item.kernel, "supported": True}
    rejection = item.verdict
    return {
        "kernel": item.kernel,
        "supported": False,
        "code": rejection.code,
        "message": rejection.message,
        "fix": rejection.fix,
    }


def _memory(memory: MemoryEstimate) -> dict[str, Any]:
    return {
        "card_bytes": memory.card,
        "usable_bytes": memory.usable,
        "linear_bytes": memory.linears,
        "other_bytes": memory.others,
        "allowance_bytes": memory.allowance,
        "left_bytes": memory.left,
        "kv_bytes_per_token": memory.kv_per_token,
        "cache_tokens": memory.cache_tokens,
        "largest_context": memory.largest_context,
        "context": memory.context,
    }
