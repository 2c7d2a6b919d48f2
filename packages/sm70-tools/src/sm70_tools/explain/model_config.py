"""What a model's configuration says about its attention and its size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sm70_policy.errors import describe
from sm70_tools.errors import CheckpointError

_CACHED_ATTENTION = frozenset({"full_attention", "sliding_attention", "chunked_attention", "attention"})


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder.

    Attributes:
        model_type: The family, as the configuration names it.
        layers: Decoder layers.
        attention_layers: Those of them that keep keys and values.
        hidden: Width of the residual stream.
        heads: Query heads.
        kv_heads: Key and value heads.
        head_dim: Width of one head.
        tied: Whether the output layer shares the embedding; None when the configuration does not say.
        max_context: Longest context that the model was made for, in tokens; None when it is not said.
        text: The part of the configuration that describes the decoder.
    """

    model_type: str
    layers: int
    attention_layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    tied: bool | None
    max_context: int | None
    text: dict[str, Any]


def parse_shape(config: dict[str, Any]) -> ModelShape:
    """Read the sizes out of a `config.json`.

    Raises:
        CheckpointError: A size is missing or not a positive whole number, or the model keeps its cache in a
            form whose size is not known here.
    """
    nested = config.get("text_config")
    text: dict[str, Any] = nested if isinstance(nested, dict) else config
    if text.get("kv_lora_rank"):
        raise CheckpointError(
            describe(
                asked=f"a model with latent attention (kv_lora_rank {text['kv_lora_rank']})",
                allowed="models whose cache holds keys and values per head",
                fix="Use a model with ordinary or grouped-query attention",
            )
        )
    layers = require_size(text, "num_hidden_layers")
    hidden = require_size(text, "hidden_size")
    heads = require_size(text, "num_attention_heads")
    return ModelShape(
        model_type=str(config.get("model_type", "")),
        layers=layers,
        attention_layers=_attention_layers(text, layers),
        hidden=hidden,
        heads=heads,
        kv_heads=optional_size(text, "num_key_value_heads") or heads,
        head_dim=optional_size(text, "head_dim") or hidden // heads,
        tied=_tied(config, text),
        max_context=optional_size(text, "max_position_embeddings"),
        text=text,
    )


def require_size(text: dict[str, Any], key: str) -> int:
    """Return a positive whole number of the configuration.

    Raises:
        CheckpointError: It is missing, or something else.
    """
    size = optional_size(text, key)
    if size is None:
        raise CheckpointError(
            describe(
                asked=f"config.json without {key}",
                allowed=f"configurations that give {key} as a positive whole number",
                fix="Check that this is the config.json of a language model",
            )
        )
    return size


def optional_size(text: dict[str, Any], key: str) -> int | None:
    """Like `require_size`, but None where the key is missing or null."""
    value = text.get(key)
    if value is None:
        return None
    if type(value) is not int or value < 1:
        raise CheckpointError(
            describe(
                asked=f"config.json with {key} = {value!r}",
                allowed="a positive whole number",
                fix="Download or copy the file again",
            )
        )
    return value


def _attention_layers(text: dict[str, Any], layers: int) -> int:
    kinds = text.get("layer_types")
    if not isinstance(kinds, list):
        return layers
    return sum(kind in _CACHED_ATTENTION for kind in kinds)


def _tied(config: dict[str, Any], text: dict[str, Any]) -> bool | None:
    for place in (config, text):
        value = place.get("tie_word_embeddings")
        if isinstance(value, bool):
            return value
    return None
