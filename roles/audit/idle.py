"""What is configured and has no effect on a node: a function that did not start, a field that nothing reads, a log that stays in a
container. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from roles.audit.node_view import NodeView
from roles.audit.rules import AuditRule
from roles.control_plane_flags import misplaced
from roles.engine.editing import any_flag
from roles.engine.findings import Finding
from roles.engine.kubelet import idle
from roles.engine.kubelet.thresholds import shutdown_seconds
from roles.engine.kubelet.values import in_effect

#: How values of a file are shown that are no values to a kubelet.
_EMPTY = ("", "{}", "[]", "false", "null")
_AUDIT = ("audit-log-path", "audit-webhook-config-file")


def findings(view: NodeView) -> Iterator[Finding]:
    """The findings of one node."""
    yield from _shutdown(view)
    yield from _fields(view)
    yield from _paths(view)


def _shutdown(view: NodeView) -> Iterator[Finding]:
    if view.configuration is None:
        return
    wanted, pid = shutdown_seconds(view.configuration), str(view.kubelet.process.pid)
    if wanted <= 0 or any(lock.is_kubelets and lock.pid == pid for lock in view.seen.inhibitors):
        return
    name = "shutdownGracePeriodByPodPriority" if view.configuration.get("shutdownGracePeriodByPodPriority") else "shutdownGracePeriod"
    why = ""
    if (logind := view.seen.logind) is not None:
        delay = logind.delay()
        less = f"{delay.file or 'its default'} gives {delay.seconds:g} s of the {wanted:g} s" if delay.seconds < wanted else ""
        why = f": {logind.problem or less}" if logind.problem or less else ""
    yield _finding(
        view,
        "kubelet",
        name,
        f"the kubelet runs with it and holds no lock that delays a shutdown (/run/systemd/inhibit){why}: it ends no pods at a shutdown",
        "set InhibitDelayMaxSec in /etc/systemd/logind.conf.d, restart systemd-logind, then the kubelet; see `systemd-inhibit --list`",
        f"{wanted:g} s",
    )


def _fields(view: NodeView) -> Iterator[Finding]:
    if view.configuration is None:
        return
    # kubeadm writes many fields as 0, which a kubelet reads as not set.
    named = dict.fromkeys(one.name for one in view.settings if one.counts and one.value not in _EMPTY and not in_effect(None, one.value))
    for name, why in idle(view.configuration, named, view.seen.cgroup2).items():
        yield _finding(view, "kubelet", name, f"it has no effect: {why}", "remove it, or change what is in its way")


def _paths(view: NodeView) -> Iterator[Finding]:
    for program, component in view.components.items():
        flags = any_flag.every(component.argv)
        written = {name: values for name, values in flags.items() if name in _AUDIT}
        for one in misplaced(program, component.container, component.data, component.argv, written):
            yield _finding(view, program, one.flag, one.why, one.way_out, written[one.flag][-1])


def _finding(view: NodeView, component: str, name: str, rule: str, way_out: str, value: str | None = None) -> Finding:
    found = view.setting(name) if component == "kubelet" else None
    home = view.components[component].manifest_path if component in view.components else None
    shown = value if value is not None or found is None else found.value
    return AuditRule.NO_EFFECT.found(view.at(component, name, found, shown, home), rule, way_out)
