"""The entry point that vLLM calls in every one of its processes.

Importing this module costs nothing: torch, vLLM and the kernel packages are imported when `register` runs.
"""

from __future__ import annotations

import logging

from sm70_policy.errors import HostError

_LOG = logging.getLogger("vllm.sm70")


def register() -> None:
    """Select the adapter for the installed vLLM and apply its patches. Calling it again changes nothing.

    A vLLM that the suite does not know is left as it is; one logged error says so. The server starts either
    way, because an installed but unusable plug-in must not take down models that do not need it.
    """
    try:
        _apply()
    except HostError as error:
        _LOG.error("The sm70 suite is inactive. %s", error)
    except Exception:  # noqa: BLE001 - vLLM calls plug-ins unguarded: what escapes here kills the server
        _LOG.exception("The sm70 suite is inactive: an unexpected error, which is a defect of sm70-policy")


def _apply() -> None:
    from sm70_policy.vllm import hosts, ledger

    host = hosts.find_host(hosts.installed_version())
    for entry in ledger.apply_all(host):
        if entry.status is ledger.Status.REFUSED:
            _LOG.error("The sm70 suite left %s as it is: %s", entry.patch.target, entry.reason)
        else:
            _LOG.debug("sm70 patch %s: %s %s", entry.patch.name, entry.status, entry.reason)
