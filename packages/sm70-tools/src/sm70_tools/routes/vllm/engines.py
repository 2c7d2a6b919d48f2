"""Engine configurations of vLLM, made as its front end makes them from command-line arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sm70_tools.routes.configurations import DRAFT_TOKENS, Configuration
from sm70_tools.routes.scopes import Scope, find_scope
from sm70_tools.routes.stock_formats import NVFP4_COMPRESSED, NVFP4_MODELOPT

QUANTIZATIONS: dict[str, Mapping[str, Any]] = {
    "compressed-tensors": NVFP4_COMPRESSED,
    "modelopt": NVFP4_MODELOPT,
}
"""`quantization_config` of each tool's NVFP4 checkpoints."""

_CONTEXT = 32768
_DRAFT_LAYERS = 5


class Engines:
    """Makes configurations; the models' config.json files are written below one folder.

    vLLM looks at a model's class in a process of its own when it first meets it, and keeps what it found in
    its cache on disk.
    """

    def __init__(self, folder: Path) -> None:
        """Write into `folder`, which exists."""
        self._folder = folder

    def of(self, configuration: Configuration, settings: Mapping[str, object]) -> Any:
        """The `VllmConfig` of one row.

        Args:
            configuration: The row.
            settings: Section `sm70_nvfp4` of `additional_config`.
        """
        scope = find_scope(configuration.scope)
        model = self._model(scope.name, {**scope.model_config}, QUANTIZATIONS[scope.checkpoint])
        return _engine(
            model,
            max_num_seqs=configuration.concurrency,
            max_num_batched_tokens=configuration.budget,
            kv_cache_dtype=configuration.kv,
            tensor_parallel_size=configuration.tp,
            distributed_executor_backend="mp",
            speculative_config=self._speculation(scope, configuration.speculation),
            additional_config={"sm70_nvfp4": dict(settings)} if settings else {},
        )

    def for_format(self, name: str, quantization: Mapping[str, Any], model_config: Mapping[str, Any]) -> Any:
        """The `VllmConfig` of one kind of checkpoint, with nothing else asked for."""
        return _engine(self._model(name, model_config, quantization))

    def _speculation(self, scope: Scope, kind: str) -> dict[str, Any] | None:
        tokens = DRAFT_TOKENS[kind]
        if kind == "mtp":
            return {"method": "mtp", "num_speculative_tokens": tokens}
        if kind == "dflash":
            draft = self._model(f"{scope.name}-dflash", _draft(scope.model_config), None)
            return {"method": "dflash", "model": draft, "num_speculative_tokens": tokens}
        return None

    def _model(self, name: str, content: Mapping[str, Any], quantization: Mapping[str, Any] | None) -> str:
        folder = self._folder / name
        if not folder.exists():
            folder.mkdir()
            whole = {**content} if quantization is None else {**content, "quantization_config": quantization}
            (folder / "config.json").write_text(json.dumps(whole), encoding="utf-8")
        return str(folder)


def _engine(model: str, **arguments: Any) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    return EngineArgs(
        model=model, skip_tokenizer_init=True, dtype="float16", max_model_len=_CONTEXT, **arguments
    ).create_engine_config()


def _draft(target: Mapping[str, Any]) -> dict[str, Any]:
    """A small DFlash draft model for a target: the sizes that have to agree, and plain ones else."""
    layers = target["num_hidden_layers"]
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": target["hidden_size"],
        "intermediate_size": 4 * target["hidden_size"],
        "num_hidden_layers": _DRAFT_LAYERS,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": target["vocab_size"],
        "max_position_embeddings": target["max_position_embeddings"],
        "torch_dtype": "float16",
        "block_size": 16,
        "num_target_layers": layers,
        "dflash_config": {
            "mask_token_id": target["vocab_size"] - 1,
            "target_layer_ids": [1 + index * (layers - 4) // _DRAFT_LAYERS for index in range(_DRAFT_LAYERS)],
        },
    }
