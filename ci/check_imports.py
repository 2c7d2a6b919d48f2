"""Rules for what a package may import, for what loading it may cost, and for the environment.

Only files below packages/*/src are looked at. Rules:

1. A module imports its own package, sm70_policy, the standard library and the third parties named below.
2. sm70_tools may import the other packages, inside functions only: they are extras.
3. Loading the vLLM plug-in or a provider imports neither torch, triton nor vLLM, at any distance.
4. `os.environ` and `os.getenv` are read in the modules named below and written nowhere.
"""

from __future__ import annotations

import argparse
import ast
import sys
from dataclasses import dataclass, field
from pathlib import Path

from repository import ROOT, packages, report

POLICY_MODULE = "sm70_policy"
TOOLS_MODULE = "sm70_tools"

THIRD_PARTIES: dict[str, frozenset[str]] = {
    "sm70_policy": frozenset({"torch", "vllm"}),
    "sm70_kernels_cuda": frozenset({"torch"}),
    "sm70_kernels_triton": frozenset({"torch", "triton"}),
    "sm70_moe": frozenset({"torch", "vllm"}),
    "sm70_tools": frozenset({"rich", "torch", "vllm", "matplotlib", "humming"}),
}

HEAVY = frozenset({"torch", "triton", "vllm"})

ENVIRONMENT_READERS: frozenset[str] = frozenset(
    {
        "sm70_policy.vllm.deprecated",
        # Hands it on to processes, without the variables that would change what they find.
        "sm70_tools.routes.processes",
    }
)
"""Modules that may read the environment."""

_ENVIRONMENT_WRITERS = frozenset({"clear", "pop", "popitem", "setdefault", "update"})


@dataclass(frozen=True)
class Import:
    """One imported module.

    Attributes:
        target: Dotted name; for `from a import b` both `a` and `a.b` are listed.
        line: Line number.
        at_load: Whether it runs when the module is loaded: not in a function, not for type checkers only.
        typing_only: Whether it stands under `if TYPE_CHECKING`.
    """

    target: str
    line: int
    at_load: bool
    typing_only: bool


@dataclass
class Module:
    """A parsed source file."""

    name: str
    path: Path
    is_package: bool
    tree: ast.Module
    imports: list[Import] = field(default_factory=list)


class _ImportCollector(ast.NodeVisitor):
    """Collects the imports of one module with the place that they stand in."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.in_function = False
        self.in_typing = False

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            parts = self.module.name.split(".")
            keep = len(parts) - node.level + (1 if self.module.is_package else 0)
            base = ".".join([*parts[:keep], *([base] if base else [])])
        self._add(base, node.lineno)
        for alias in node.names:
            self._add(f"{base}.{alias.name}", node.lineno)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        outer, self.in_function = self.in_function, True
        self.generic_visit(node)
        self.in_function = outer

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the name that ast.NodeVisitor looks up
    visit_Lambda = visit_FunctionDef  # noqa: N815 - the same

    def visit_If(self, node: ast.If) -> None:
        if _is_type_checking(node.test):
            outer, self.in_typing = self.in_typing, True
            for statement in node.body:
                self.visit(statement)
            self.in_typing = outer
            for statement in node.orelse:
                self.visit(statement)
            return
        self.generic_visit(node)

    def _add(self, target: str, line: int) -> None:
        at_load = not (self.in_function or self.in_typing)
        self.module.imports.append(Import(target, line, at_load, self.in_typing))


def _is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"


def load_modules(root: Path) -> dict[str, Module]:
    """Parse every source file of every package, by dotted name."""
    modules: dict[str, Module] = {}
    for package in packages(root):
        for path in sorted(package.source.rglob("*.py")):
            parts = list(path.relative_to(package.source.parent).with_suffix("").parts)
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            module = Module(name, path, is_package, ast.parse(path.read_text(encoding="utf-8"), str(path)))
            _ImportCollector(module).visit(module.tree)
            modules[name] = module
    return modules


def check_directions(root: Path, modules: dict[str, Module]) -> list[str]:
    """Rules 1 and 2."""
    own = {package.module for package in packages(root)}
    findings = set()
    for module in modules.values():
        for item in module.imports:
            reason = _direction(module.name.split(".")[0], item, own)
            if reason:
                findings.add((str(module.path.relative_to(root)), item.line, reason))
    return [f"{path}:{line}: {reason}" for path, line, reason in sorted(findings)]


def _direction(package: str, item: Import, own: set[str]) -> str:
    target = item.target.split(".")[0]
    if target in {package, POLICY_MODULE} or target in sys.stdlib_module_names:
        return ""
    if target in own:
        if package != TOOLS_MODULE:
            return (
                f"{package} imports {target}; packages import {POLICY_MODULE} and no other one of the suite"
            )
        if item.at_load:
            return f"{package} imports {target} when loaded; it is an extra, so import it inside a function"
        return ""
    allowed = THIRD_PARTIES.get(package, frozenset())
    if target in allowed:
        return ""
    names = ", ".join(sorted(allowed)) or "none"
    return f"{package} imports {target}, which is not among its third parties: {names}"


def check_loading(root: Path, modules: dict[str, Module]) -> list[str]:
    """Rule 3: follow what is imported when a plug-in or a provider is loaded."""
    findings = []
    for name, module in sorted(modules.items()):
        if name != "sm70_policy.vllm.plugin" and module.path.name != "provider.py":
            continue
        chain = _heavy_chain(name, modules)
        if chain:
            findings.append(f"{module.path.relative_to(root)}: loading it imports {' -> '.join(chain)}")
    return findings


def _heavy_chain(start: str, modules: dict[str, Module]) -> list[str]:
    """The shortest chain of imports from `start` to a heavy module; empty without one."""
    queue = [[name] for name in [*_parents(start), start]]
    seen = {chain[0] for chain in queue}
    while queue:
        chain = queue.pop(0)
        module = modules.get(chain[-1])
        for item in module.imports if module else []:
            if not item.at_load:
                continue
            if item.target.split(".")[0] in HEAVY:
                return [*chain, item.target.split(".")[0]]
            for name in [*_parents(item.target), item.target]:
                if name in modules and name not in seen:
                    seen.add(name)
                    queue.append([*chain, name])
    return []


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def check_environment(root: Path, modules: dict[str, Module], readers: frozenset[str]) -> list[str]:
    """Rule 4."""
    findings = []
    for name, module in sorted(modules.items()):
        place = module.path.relative_to(root)
        for line, writes in _environment_uses(module.tree):
            if writes:
                findings.append(f"{place}:{line}: the environment is written; pass the value instead")
            elif name not in readers:
                findings.append(f"{place}:{line}: {name} reads the environment and is not among its readers")
    return findings


def _environment_uses(tree: ast.Module) -> list[tuple[int, bool]]:
    """Line of every use of the environment, and whether it writes."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    uses = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            names = {alias.name for alias in node.names}
            if names & {"environ", "environb", "getenv", "putenv", "unsetenv"}:
                uses.append((node.lineno, bool(names & {"putenv", "unsetenv"})))
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "os":
            if node.attr in {"environ", "environb"}:
                uses.append((node.lineno, _writes(node, parents)))
            elif node.attr in {"getenv", "putenv", "unsetenv"}:
                uses.append((node.lineno, node.attr != "getenv"))
    return uses


def _writes(node: ast.Attribute, parents: dict[ast.AST, ast.AST]) -> bool:
    parent = parents.get(node)
    if isinstance(parent, ast.Subscript):
        return isinstance(parent.ctx, ast.Store | ast.Del)
    if isinstance(parent, ast.Attribute):
        return parent.attr in _ENVIRONMENT_WRITERS
    return isinstance(parent, ast.AugAssign) or isinstance(node.ctx, ast.Store | ast.Del)


def main(argv: list[str] | None = None) -> int:
    """Check the repository and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="root of the repository")
    root = parser.parse_args(argv).root
    modules = load_modules(root)
    findings = [
        *check_directions(root, modules),
        *check_loading(root, modules),
        *check_environment(root, modules, ENVIRONMENT_READERS),
    ]
    return report("check_imports", findings)


if __name__ == "__main__":
    sys.exit(main())
