"""The rules of the audit, in the order of its report: docs/audit.md has this table. What is wrong on a node by itself has rules of its own
(roles/engine/node_lint/rules.py), with their kind. Pure."""

from __future__ import annotations

from roles.engine.findings import Rule, Severity

_C, _W, _N = Severity


# fmt: off
class AuditRule(Rule):
    """The kinds of findings. Budgets and autoscalers have rules of their own, and are one kind each."""

    UNREADABLE = ("unreadable", _C, "a file that would keep the kubelet from starting again",
        "see systemctl status kubelet and its journal; the rest of this node could not be checked", "cannot be read")
    IDENTITY = ("identity", _C,
        "a host that is not what it claims: it runs a control plane that the inventory does not know, or has another node's name ([whom a "
        "run believes](threat-model.md#whom-a-run-believes))", "", "is not what it claims")
    ETCD = ("etcd", _C, "members of etcd that do not answer; `critical` if the loss of one more would stop the cluster", "", "etcd")
    START = ("start", _C,
        "what stands in the way of the next start of the kubelet or of a component, or of new pods: [what is judged](before-a-restart.md)",
        "", "next start and new pods")
    CORDON = ("cordon", _W,
        "a node that has been cordoned for more than a day, or nobody knows since when: by whom, and the command that ends it", "",
        "cordoned for long")
    ASLEEP = ("asleep", _N,
        "a machine that daytwo turned off: until when it may stay off ([due dates](power.md#due-dates)); notes do not count for the exit "
        "code", "", "turned off")
    IN_FLIGHT = ("in-flight", _W, "a daytwo change that is unconfirmed, or that could not be reverted", "", "unconfirmed change")
    DAEMON_RELOAD = ("daemon-reload", _C, "a unit or drop-in was edited, and systemd has not reloaded it", "", "daemon-reload missing")
    STALE = ("stale", _W,
        "a process whose arguments, gates or fields differ from its files, or that is older than its files or its binary. A component "
        "that does not run, or not as its manifest says", "", "process out of date")
    STRAY = ("stray", _W,
        "in the manifests directory: two files for one pod, files that are not manifests, directories and dotfiles (which the kubelet "
        "skips); in a drop-in directory: files that are not read", "", "stray file")
    BACKUP = ("backup", _C,
        "a backup copy that is read: in the manifests directory under any name; as `*.conf` in `--config-dir` or in the unit's drop-in "
        "directory", "", "backup file that is read")
    DRIFT = ("drift", _W, "differs from the inventory: `feature_gates`, `kubelet_config`, `eviction_*`", "", "differs from the inventory")
    SIBLING = ("sibling", _W, "a node that differs from most nodes of its group with the same version and components",
        "set the same value on all, or put the node into a separate group if the difference is intended", "differs from its siblings")
    FLAG_BEATS_FILE = ("flag-beats-file", _W, "a flag and a file set different values: the file has no effect", "", "flag overrides file")
    GATE = ("gate", _W,
        "a gate that this version does not know, has locked, has deprecated or has made GA, or that the component does not read",
        "", "gate in this version")
    FIELD = ("field", _W, "a field or flag that this version does not have", "remove it", "field in this version")
    NO_EFFECT = ("no-effect", _W,
        "configured, and without effect: a graceful shutdown whose kubelet holds no lock, [fields that nothing "
        "uses](effective.md#fields-without-effect), an audit log in the container or without a policy", "", "configured, without effect")
    TARGET_VERSION = ("target-version", _W,
        "gates, flags and fields that `target_version` removes or locks, in every source: files, units, environment files (also those that "
        "another source overrides today), manifests, kubeadm's ConfigMaps",
        "remove it before the upgrade", "affected by the target version")
    SPLIT_BRAIN = ("split-brain", _W, "kubeadm's ConfigMaps and a node's files differ: the next `kubeadm upgrade` overwrites the files",
        "", "ConfigMap and node differ")
    RESIZE = ("resize", _W,
        "pods resized in place that differ from their template: recreated pods get the template's values (deploys/resize_drift.py lists "
        "them)",
        "deploys/resize_drift.py names the pods; deploys/resize.py updates the template (template=update) or resizes them back",
        "pods differ from their template")
    DISRUPTION = ("disruption", _W,
        "budgets that block drains, forever or now; workloads that a drain would hurt: [the rules](disruption.md#what-the-audit-finds)",
        "", "disruption")
    AUTOSCALER = ("autoscaler", _W,
        "autoscalers that do not work, or will surprise their owners: [the rules](autoscaling.md#what-keeps-an-autoscaler-from-working)",
        "", "autoscaler")
    CERTIFICATE = ("certificate", _W,
        "certificates that have expired or will soon: of kubelets (client and serving), API server, front proxy, controller-manager, "
        "scheduler, etcd, and their CAs. Requests for certificates that nobody has approved or denied ([the metrics "
        "API](metrics-api.md#renewals))", "", "certificate")
    PAIR = ("pair", _W,
        "settings in two places that [must fit each other](reference/pairs.md), and do not; notes do not count for the exit code",
        "", "does not fit another setting")
    INVENTORY = ("inventory", _W, "invalid data that every deploy refuses", "fix the inventory's data: every deploy refuses it",
        "invalid data in the inventory")
# fmt: on
