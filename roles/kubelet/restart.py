"""What a restart of a kubelet would bring besides the change at hand. Pure. One rule for all deploys: it is refused, with what to do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from roles.change.refusal import Refusal
from roles.formats import flags
from roles.kubelet import schema, settings
from roles.kubelet.facts import Kubelet


def more(kubelet: Kubelet, configuration: Mapping[str, Any] | None = None, gates: Collection[str] = ()) -> list[str]:
    """What the files have otherwise than the running process: arguments, fields, the binary. Empty where a restart brings none of it.

    `configuration`: what it runs with (/configz), where that is known; it is compared for the versions whose fields are known. `gates`:
    those that the change itself is about.
    """
    found = _arguments(kubelet, gates)
    if configuration is not None and schema.OLDEST <= (kubelet.process.minor or 0) <= schema.NEWEST:
        found += settings.pending(kubelet, configuration, gates)
    if kubelet.process.binary_replaced:
        found.append("the kubelet's binary was replaced since it started; a restart also brings the new one")
    return found


def _arguments(kubelet: Kubelet, gates: Collection[str]) -> list[str]:
    resolved, running = kubelet.service.known_argv, kubelet.process.argv
    if resolved is None or resolved == running:
        return []
    before, after = kubelet.running_gates, kubelet.gates
    by_flag = {**before, **kubelet.flag_gates}
    moved = [name for name in by_flag if name not in gates and before.get(name) != after.get(name)]
    # In another order they come to the same.
    if not moved and sorted(flags.without_gates(running)) == sorted(flags.without_gates(resolved)):
        return []
    difference = [f"-{word}" for word in running if word not in resolved] + [f"+{word}" for word in resolved if word not in running]
    return [f"the running kubelet has other arguments than its files give; a restart also brings: {' '.join(difference) or 'one twice'}"]


def check(kubelet: Kubelet, configuration: Mapping[str, Any] | None = None, gates: Collection[str] = ()) -> None:
    """Refuse to restart a kubelet where that brings more than the change. Raises Refusal."""
    if others := more(kubelet, configuration, gates):
        raise Refusal(
            kubelet.seen.host,
            f"a restart would bring more than this change: {'; '.join(others)}",
            f"it was edited since the kubelet started: put it back, or `systemctl restart {kubelet.unit_name}` on the node first",
        )
