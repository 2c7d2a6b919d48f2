"""The subcommand `sm70 routes`."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from sm70_policy.errors import describe
from sm70_tools.errors import ArgumentError, NothingToDoError
from sm70_tools.routes import baseline, categories, difference, encoding, markdown, processes
from sm70_tools.routes.hosts import DEFAULT_HOST

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from sm70_tools.routes.snapshot import Snapshot

EXIT_DIFFERS = 1
EXIT_NOTHING = 3
"""Exit status for a category that has no rows yet."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `routes` to the command line."""
    parser = commands.add_parser("routes", help="which kernel every configuration takes, and what changed")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    snapshot = actions.add_parser("snapshot", help="ask vLLM for all rows of a category")
    _add_category(snapshot, required=True)
    snapshot.add_argument("--output", type=Path, metavar="FILE", help="file to write (default: print)")
    snapshot.add_argument("--baseline-ref", metavar="REV", help="take it from another revision's code")
    snapshot.set_defaults(action=_snapshot)
    check = actions.add_parser(
        "check", help="ask vLLM again; exit 1 unless the rows are those of FILE, or of another revision"
    )
    check.add_argument("file", type=Path, nargs="?", metavar="FILE", help="a snapshot")
    _add_category(check, required=False)
    check.add_argument(
        "--baseline-ref", metavar="REV", help="instead of FILE: what that revision's code takes"
    )
    _add_expected(check)
    check.add_argument("--output", type=Path, metavar="FILE", help="write the new snapshot as well")
    check.set_defaults(action=_check)
    diff = actions.add_parser("diff", help="compare two snapshots; exit 1 when rows differ. Needs no vLLM")
    diff.add_argument("old", type=Path, metavar="OLD")
    diff.add_argument("new", type=Path, metavar="NEW")
    _add_expected(diff)
    diff.add_argument("--ids", action="store_true", help="print a list for --expected-changes, and exit 0")
    diff.set_defaults(action=_diff)
    table = actions.add_parser("table", help="print a snapshot of the category stock as Markdown")
    table.add_argument("file", type=Path, metavar="FILE")
    table.set_defaults(action=_table)
    parser.set_defaults(run=run)


def _add_category(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument("--category", required=required, metavar="NAME", help=f"one of {categories.names()}")
    parser.add_argument(
        "--host", metavar="VERSION", help=f"version of vLLM (default {DEFAULT_HOST}, or that of FILE)"
    )


def _add_expected(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--expected-changes", type=Path, metavar="FILE", help="JSON list of exactly the rows that may differ"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run `sm70 routes`.

    Returns:
        0; 1 when rows differ that should not, or do not that should; 3 when there is nothing to snapshot yet.
    """
    try:
        status: int = arguments.action(arguments)
    except NothingToDoError as reason:
        print(f"sm70: {reason}", file=sys.stderr)
        return EXIT_NOTHING
    return status


def _snapshot(arguments: argparse.Namespace) -> int:
    category = categories.find_category(arguments.category)
    host = arguments.host or DEFAULT_HOST
    if arguments.baseline_ref:
        taken = baseline.take(category, host, arguments.baseline_ref)
    else:
        taken = processes.take(category, host)
    if arguments.output is None:
        print(encoding.to_text(taken), end="")
    else:
        _write(taken, arguments.output)
    return 0


def _write(taken: Snapshot, path: Path) -> None:
    path.write_text(encoding.to_text(taken), encoding="utf-8")
    print(f"{path}: {len(taken.rows)} rows of {taken.category} in vLLM {taken.host}")


def _check(arguments: argparse.Namespace) -> int:
    if (arguments.file is None) == (arguments.baseline_ref is None):
        raise ArgumentError(
            describe(
                asked="sm70 routes check with a FILE and a --baseline-ref, or with neither",
                allowed="one of the two",
                fix="Name a snapshot, or a revision together with --category",
            )
        )
    expected = _expected(arguments)
    if arguments.file is not None:
        old = encoding.read(arguments.file)
        _check_asked(arguments, old)
        category = categories.find_category(old.category)
    else:
        category = categories.find_category(arguments.category or "")
        old = baseline.take(category, arguments.host or DEFAULT_HOST, arguments.baseline_ref)
    new = processes.take(category, old.host)
    if arguments.output is not None:
        _write(new, arguments.output)
    return _judge(old, new, expected)


def _check_asked(arguments: argparse.Namespace, old: Snapshot) -> None:
    for option, value in (("category", old.category), ("host", old.host)):
        asked = getattr(arguments, option)
        if asked is not None and asked != value:
            raise ArgumentError(
                describe(
                    asked=f"--{option} {asked} for {arguments.file}, which holds {value}",
                    allowed="what the file holds",
                    fix="Leave the option away, or name another file",
                )
            )


def _expected(arguments: argparse.Namespace) -> frozenset[str]:
    path = arguments.expected_changes
    return frozenset() if path is None else difference.read_expected(path)


def _diff(arguments: argparse.Namespace) -> int:
    old, new = encoding.read(arguments.old), encoding.read(arguments.new)
    if arguments.ids:
        names = [f' "{change.row_id}"' for change in difference.compare(old, new)]
        print("[\n" + ",\n".join(names) + "\n]" if names else "[]")
        return 0
    return _judge(old, new, _expected(arguments))


def _judge(old: Snapshot, new: Snapshot, expected: frozenset[str]) -> int:
    """Print what differs, judge it, and return the exit status."""
    changes = difference.compare(old, new)
    _print_changes(changes)
    judgement = difference.judge(changes, expected)
    for title, ids in (
        ("differs and is not expected to", judgement.unexpected),
        ("is expected to differ and does not", judgement.missing),
    ):
        for row_id in ids:
            print(f"{title}: {row_id}")
    if changes and not judgement.good:
        _print_packages(old, new)
    print(
        f"{len(new.rows)} rows of {new.category} in vLLM {new.host}: {len(changes)} differ, "
        f"{len(judgement.unexpected)} unexpected, {len(judgement.missing)} missing"
    )
    return 0 if judgement.good else EXIT_DIFFERS


def _print_changes(changes: Sequence[difference.Change]) -> None:
    """Each set of details once, with the number of rows that it is true for."""
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for change in changes:
        groups[change.details].append(change.row_id)
    for details, ids in groups.items():
        more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
        print(f"{ids[0]}{more}:")
        for line in details:
            print(f"  {line}")


def _print_packages(old: Snapshot, new: Snapshot) -> None:
    for name in sorted(old.packages.keys() | new.packages.keys()):
        versions = [item.packages.get(name) or "not installed" for item in (old, new)]
        if versions[0] != versions[1]:
            print(f"taken with other packages: {name} {versions[0]} -> {versions[1]}")


def _table(arguments: argparse.Namespace) -> int:
    print(markdown.stock_table(encoding.read(arguments.file)), end="")
    return 0
