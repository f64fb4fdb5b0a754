"""The rules for a node. The last entry of a row is the kind of the audit that reports it (AuditRule); a check names those that fail it
(roles/checks/judge.py), and a note fails none. Pure."""

from __future__ import annotations

from roles.engine.findings import Rule, Severity

_C, _W, _N = Severity
_RESTART = "restart the kubelet if its files are right; otherwise restore them"
_MOVE = "fix it, or move it to another directory"


# fmt: off
class NodeRule(Rule):
    """What is wrong. Its cause is the rule, never the text of a finding."""

    IN_FLIGHT = ("in-flight", _W, "a change of daytwo is unconfirmed, or could not be reverted",
        "wait until it ends; deploys/changes.py shows the outcome", "in-flight")
    UNIT = ("unit", _C, "systemd has not read the kubelet's unit as it is on disk",
        "check the edit, then run `systemctl daemon-reload`, and restart the kubelet to apply it", "daemon-reload")
    BINARY = ("binary", _W, "the kubelet's binary was replaced after its start",
        "restart the kubelet at a time that suits you, drained, one node at a time", "stale")
    ARGUMENT = ("argument", _W, "a flag of the kubelet's unit differs from that of its process", _RESTART, "stale")
    SETTING = ("setting", _W, "a field or gate in the kubelet's files differs from that of its process", _RESTART, "stale")
    UNKNOWN = ("unknown", _W, "the values in the kubelet's files are not known", "fix the files", "stale")
    YOUNGER = ("younger", _W, "a file of the kubelet was written after its start; a note if its values are known to be in effect",
        "restart the kubelet at a time that suits you, to apply the file", "stale")
    MANIFEST = ("manifest", _W, "a component of the control plane does not run with the arguments of its manifest",
        "the kubelet's journal says why; a kubelet that was restarted while its API was down needs one more restart", "stale")
    COMPONENT = ("component", _W, "it is not clear which manifest a component has, or it does not run", "restore its manifest, or fix it",
        "stale")
    TWIN = ("twin", _C, "two files of the manifests directory define one pod", "", "stray")
    BROKEN = ("broken-manifest", _W, "a file that is named like a manifest is none", _MOVE, "stray")
    NO_MANIFEST = ("no-manifest", _W, "another file of the manifests directory, which the kubelet reads, is no manifest", _MOVE, "stray")
    BACKUP = ("backup", _C, "the kubelet runs a backup of a manifest", "", "backup")
    UNREAD = ("unread", _W, "the manifests directory has a broken link, a special file, or one that is too large", "remove it", "stray")
    SKIPPED = ("skipped", _N, "a directory or a dotfile in the manifests directory, which the kubelet skips", "", "stray")
    COPY = ("copy", _C, "a drop-in of the kubelet's configuration or of its unit is a copy of another", "", "backup")
    NO_DROPIN = ("no-drop-in", _N, "a file in --config-dir that the kubelet does not read",
        "rename it to end in .conf if the kubelet should read it; otherwise remove it", "stray")
# fmt: on
