"""The installed torch: does it hold code for the cards of this machine."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from sm70_policy.capability import VOLTA, Sm
from sm70_tools.doctor.finding import Finding, Section, Severity

if TYPE_CHECKING:
    from sm70_tools.doctor.driver import DriverCard

_ARCH = re.compile(r"(sm|compute)_(\d+)(\d)[a-z]?$")

# Read from the arch flags inside the wheels themselves (cp312, Linux x86-64).
_VOLTA_FIX = (
    "install a torch build with sm_70: the PyPI wheel of torch 2.10.0 (CUDA 12.8) has it, those of 2.11.0 "
    "and later (CUDA 13) do not. vLLM pins its torch: vLLM 0.19.1 pins 2.10.0, and has code for 7.0 itself"
)


@dataclass(frozen=True)
class TorchBuild:
    """What an installed torch says about itself.

    Attributes:
        version: Its version.
        cuda: CUDA release that it was built with; None for a CPU build.
        archs: Architectures that it holds code for, such as `sm_70`.
        failure: Why torch could not be imported; empty when it could.
    """

    version: str | None
    cuda: str | None = None
    archs: tuple[str, ...] = ()
    failure: str = ""


def read() -> TorchBuild:
    """Import torch, if it is there, and ask it."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name == "torch":
            return TorchBuild(None)
        return TorchBuild(None, failure=f"{type(error).__name__}: {error}")
    except Exception as error:  # noqa: BLE001 - a broken installation raises anything
        return TorchBuild(None, failure=f"{type(error).__name__}: {error}")
    archs = torch.cuda.get_arch_list()
    if not archs:
        # Without a usable driver the public function answers nothing; the build's own flags are still there.
        flags = getattr(torch._C, "_cuda_getArchFlags", None)  # noqa: SLF001 - no public function tells
        archs = (flags() or "").split() if flags is not None else []
    return TorchBuild(str(torch.__version__), torch.version.cuda, tuple(archs))


def covers(archs: tuple[str, ...], sm: Sm) -> bool:
    """Whether code for `archs` runs on `sm`.

    Binaries (`sm_`) run within their major version from their minor version on; PTX (`compute_`) runs on
    anything newer.
    """
    for arch in archs:
        match = _ARCH.match(arch)
        if match is None:
            continue
        built = Sm(int(match[2]), int(match[3]))
        if built <= sm and (match[1] == "compute" or built.major == sm.major):
            return True
    return False


def probe(build: TorchBuild, cards: tuple[DriverCard, ...]) -> Section:
    """Judge the build against the cards."""
    return Section("torch", tuple(_findings(build, cards)), asdict(build) | {"archs": list(build.archs)})


def _findings(build: TorchBuild, cards: tuple[DriverCard, ...]) -> list[Finding]:
    if build.failure:
        return [Finding(Severity.BLOCKING, f"torch cannot be imported: {build.failure}", "reinstall torch")]
    if build.version is None:
        return [
            Finding(
                Severity.WARNING, "torch is not installed", "install vLLM, which brings the torch it needs"
            )
        ]
    if build.cuda is None:
        severity = Severity.BLOCKING if cards else Severity.INFO
        return [
            Finding(
                severity,
                f"torch {build.version} is a CPU build",
                "install a CUDA build of torch to use a card",
            )
        ]
    text = f"torch {build.version}, CUDA {build.cuda}, built for {' '.join(build.archs) or 'no known card'}"
    findings = [Finding(Severity.OK, text)]
    capabilities = sorted({card.sm for card in cards})
    return findings + [_uncovered(build, sm) for sm in capabilities if not covers(build.archs, sm)]


def _uncovered(build: TorchBuild, sm: Sm) -> Finding:
    return Finding(
        Severity.BLOCKING,
        f"torch {build.version} holds no code for compute capability {sm}: kernels would fail with "
        '"no kernel image is available for execution on the device"',
        _VOLTA_FIX if sm in VOLTA else f"install a torch build with sm_{sm.number}",
    )
