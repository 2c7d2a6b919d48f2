"""What belongs to the engine whose model is being built: its policy, its report, its activation dtype.

Nothing here is a setting of the process. The policy is read from vLLM's current configuration whenever it is
needed, so two engines in one process never see each other's.
"""

from __future__ import annotations

import hashlib
import weakref
from typing import Any

from sm70_policy.capability import Device, Sm
from sm70_policy.qualification import Workload
from sm70_policy.route import Policy
from sm70_policy.settings import Settings
from sm70_policy.vllm.deprecated import with_deprecated
from sm70_policy.vllm.report import Report

# Not named like a section of the settings, which start with `sm70`.
_FINGERPRINT = "_sm70_routes"

_reports: dict[int, Report] = {}


def current_config() -> Any | None:
    """The configuration of the engine that vLLM is building; None outside of one."""
    from vllm.config import get_current_vllm_config_or_none

    return get_current_vllm_config_or_none()


def policy_of(config: Any | None) -> Policy:
    """The policy that a vLLM configuration asks for, and where it is silent, deprecated variables.

    Raises:
        SettingsError: The suite's part of `additional_config` is malformed, or such a variable is.
    """
    from vllm import envs

    additional = getattr(config, "additional_config", None)
    settings = Settings.from_mapping(with_deprecated(additional if isinstance(additional, dict) else {}))
    disabled = frozenset(name.strip() for name in envs.VLLM_DISABLED_KERNELS)
    return Policy(settings, disabled, workload_of(config))


def workload_of(config: Any | None) -> Workload:
    """How a vLLM configuration says that the engine will be used."""
    if config is None:
        return Workload()
    return Workload(config.scheduler_config.max_num_seqs, config.speculative_config is not None)


def report_of(config: Any | None, policy: Policy, device: Device) -> Report:
    """The report of the engine that `config` belongs to; a fresh one without an engine.

    vLLM copies its configuration for the language model inside a multimodal model and for a draft model, and
    the copies share the compilation configuration. That object therefore stands for the engine.
    """
    if config is None:
        return Report(policy, device, routes_file=None)
    anchor = config.compilation_config
    report = _reports.get(id(anchor))
    if report is None:
        writes = config.parallel_config.rank == 0 and config.parallel_config.data_parallel_rank == 0
        report = Report(policy, device, policy.settings.sm70_report.routes_file if writes else None)
        _reports[id(anchor)] = report
        weakref.finalize(anchor, _reports.pop, id(anchor), None)
    return report


def fingerprint(config: Any | None, layer: str, served_by: str) -> None:
    """Make a layer's kernel part of what vLLM hashes to find compiled graphs in its cache.

    Settings in the configuration are part of that hash already. Those of deprecated variables are not, and
    the choice also depends on which packages are installed, in which version. Two kernels whose tensors have
    the same names and shapes would otherwise share a graph.
    The mapping is replaced and not changed, since the user may have passed one mapping to two engines.
    """
    if config is None or not isinstance(config.additional_config, dict):
        return
    before = config.additional_config.get(_FINGERPRINT, "")
    digest = hashlib.sha256(f"{before}\n{layer}\n{served_by}".encode()).hexdigest()
    config.additional_config = {**config.additional_config, _FINGERPRINT: digest}


def first_device() -> Device | None:
    """The device that vLLM's own gates ask about: the first of this process.

    None for platforms that the suite has nothing for.
    """
    from vllm.platforms import current_platform

    return platform_device(current_platform)


def own_device() -> Device | None:
    """The device that this process builds layers for: the worker's own, once it has chosen one.

    None for platforms that the suite has nothing for.
    """
    import torch
    from vllm.platforms import current_platform

    # Before that, as in the front end, there is no other answer than vLLM's own.
    index = torch.cuda.current_device() if torch.cuda.is_initialized() else 0
    return platform_device(current_platform, index)


def platform_device(platform: Any, index: int = 0) -> Device | None:
    """A device of a vLLM platform object; None for platforms without kernels of the suite.

    Args:
        platform: vLLM's object.
        index: Which of its devices, as torch counts.
    """
    if platform.is_cpu():
        return Device.cpu()
    capability = platform.get_device_capability(index) if platform.is_cuda() else None
    if capability is None:
        return None
    return Device.cuda(Sm(capability.major, capability.minor), str(platform.get_device_name(index)))
