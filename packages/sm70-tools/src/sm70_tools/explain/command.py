"""The subcommand `sm70 explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from sm70_policy.capability import CARDS, find_card
from sm70_policy.errors import SettingsError, describe
from sm70_policy.registry import installed
from sm70_policy.route import Policy
from sm70_policy.settings import Settings
from sm70_tools.explain.as_json import to_json
from sm70_tools.explain.as_text import render
from sm70_tools.explain.checkpoint import load
from sm70_tools.explain.explanation import explain
from sm70_tools.terminal import open_console

if TYPE_CHECKING:
    import argparse

    from rich.console import Console

    from sm70_policy.registry import Registry


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `explain` to the command line."""
    parser = commands.add_parser(
        "explain", help="which kernel runs each layer of a model on a card, and what fits"
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="folder of a checkpoint, or a config.json")
    parser.add_argument(
        "--device", required=True, metavar="CARD", help=f"one of {', '.join(card.key for card in CARDS)}"
    )
    parser.add_argument("--tp", type=int, default=1, metavar="N", help="tensor-parallel ranks (default 1)")
    parser.add_argument(
        "--context", type=int, metavar="TOKENS", help="wanted context (default: the model's limit)"
    )
    parser.add_argument(
        "--config", default="{}", metavar="JSON", help="what --additional-config of vLLM would get"
    )
    parser.add_argument(
        "--disable",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="kernels to leave out, as in VLLM_DISABLED_KERNELS",
    )
    parser.add_argument("--json", action="store_true", help="print JSON with every layer")
    parser.add_argument(
        "--check", action="store_true", help="exit 1 when a layer has no kernel or it does not fit"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run `sm70 explain` with the installed kernels."""
    return run_with(arguments, installed())


def run_with(arguments: argparse.Namespace, registry: Registry, console: Console | None = None) -> int:
    """Run `sm70 explain`.

    Args:
        arguments: What the parser read.
        registry: Kernels to choose from.
        console: Where tables go; the terminal when None.

    Returns:
        0; with `--check`, 1 when a layer has no kernel or the context does not fit.
    """
    explanation = explain(
        load(arguments.model),
        find_card(arguments.device).device,
        registry,
        Policy(_settings(arguments.config), frozenset(arguments.disable)),
        tp=arguments.tp,
        context=arguments.context,
    )
    if arguments.json:
        print(json.dumps(to_json(explanation), indent=1))
    else:
        render(explanation, console or open_console())
    return 1 if arguments.check and not explanation.good else 0


def _settings(text: str) -> Settings:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise SettingsError(
            describe(
                asked=f"--config {text!r}, which is not JSON ({error})",
                allowed="a JSON object",
                fix='Write it as in --config \'{"sm70_nvfp4": {"qpn2": false}}\'',
            )
        ) from error
    if not isinstance(content, dict):
        raise SettingsError(
            describe(
                asked=f"--config {text!r}, a JSON {type(content).__name__}",
                allowed="a JSON object",
                fix='Write it as in --config \'{"sm70_nvfp4": {"qpn2": false}}\'',
            )
        )
    return Settings.from_mapping(content)
