"""Pure: how a kubelet's files differ from what the process runs with. A restart, for whatever reason, applies the difference.

There are two comparisons: the files' content with /configz and the process's own arguments; and a file's time with the start of the
process. Only the first shows what differs. But a kubelet fills in what a file leaves out, so a setting that is *not* in a file counts
only if a file was written after the process had started.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from roles.engine.editing import FormatError, flags, kubelet_config
from roles.engine.kubelet import schema
from roles.engine.kubelet.facts import Kubelet
from roles.engine.kubelet.settings import SPECIAL_SYNTAX, as_value, on_flags
from roles.engine.kubelet.values import RESERVED, RESERVED_CPUS, in_effect, lookup, same_setting, shown, without_replaced
from roles.engine.node import is_younger

GATES = "featureGates"
# Their Go types cannot tell 0 or "" from unset (config/v1beta1/types.go: no pointers), and their default is neither.
EMPTY_IS_DEFAULT = frozenset(
    {
        *("address", "port", "registryBurst", "eventBurst", "healthzBindAddress", "nodeLeaseDurationSeconds", "cgroupDriver"),
        *("cpuManagerPolicy", "memoryManagerPolicy", "topologyManagerPolicy", "topologyManagerScope", "hairpinMode", "maxPods"),
        *("maxOpenFiles", "contentType", "kubeAPIBurst", "containerLogMaxSize", "configMapAndSecretChangeDetectionStrategy"),
        *("volumePluginDir", "memoryReservationPolicy", "containerRuntimeEndpoint", "podLogsDir"),
    }
)
# Pointers to durations: 0 means 0.
ZERO_COUNTS = frozenset({"cpuCFSQuotaPeriod", "containerLogMonitorInterval"})
# klog's flags have many forms.
_SET_ELSEWHERE = ("logging.",)
# From this minor on /configz shows the driver that the container runtime reports, whatever the files say (KEP-4033).
_DRIVER, _RUNTIMES_DRIVER = "cgroupDriver", 35
# If no source sets these, the kubelet uses 0 or no text, and /configz omits them.
EMPTY_BY_DEFAULT = frozenset({"evictionMaxPodGracePeriod", "podsPerCore", "readOnlyPort", RESERVED_CPUS})
# Defaults that depend on another field (config/v1beta1/defaults.go), or on the node's cgroups.
_DEFAULT_OF_ANOTHER = frozenset({"nodeStatusReportFrequency", "serializeImagePulls", "singleProcessOOMKill"})
_HARD = "evictionHard"
#: Why `pending_arguments` is None.
ANY_FLAGS = "only systemd can resolve a word of its unit's command line, which may be any flags"
#: Flags that name what a kubelet reads once, at its start, besides its configuration: by flag, what that is. (It reads certificates of its
#: clients again while it runs.) docs/how-it-works.md has them.
READ_ONCE = {
    "kubeconfig": "the address of the API and its identity there",
    "image-credential-provider-config": "the credentials of registries",
    "cloud-config": "the cloud's credentials",
    "tls-cert-file": "its serving certificate",
    "tls-private-key-file": "the key of its serving certificate",
}
# With --bootstrap-kubeconfig a kubelet writes its kubeconfig itself, soon after its first start.
_BOOTSTRAP_SECONDS = 900


@dataclass(frozen=True)
class Pending:
    """One field that a restart changes: its value in the sources, and the one that the process runs with (None: not set). `where`: the
    flag that sets it, or "its files". `merged`: the kubelet merges the value into defaults, which are in `now`."""

    name: str
    value: Any
    now: Any
    where: str
    merged: bool = False

    @property
    def brought(self) -> Any:
        """The value after a restart."""
        return {**(self.now or {}), **(self.value or {})} if self.merged else self.value

    def __str__(self) -> str:
        return f"{self.name} is {shown(self.value, self.name)} in {self.where}, but the kubelet runs with {shown(self.now, self.name)}"


def pending_settings(kubelet: Kubelet, running: Mapping[str, Any]) -> list[Pending]:
    """Settings whose sources differ from the running kubelet (`running`: its /configz). Lists of maps are not compared, nor what klog's own
    flags may set. A driver that the container runtime may have set counts only if a file was written after the process had started."""
    younger = bool(younger_files(kubelet))
    found = []
    for name, known in schema.fields(kubelet.minor).items():
        if "[]" in name or known.kind in ("object", "list[object]") or name.startswith(_SET_ELSEWHERE):
            continue
        if (one := _pending(kubelet, running, known, younger)) is not None:
            found.append(one)
    return found


def with_own_reservations(kubelet: Kubelet, running: Mapping[str, Any]) -> dict[str, Any]:
    """/configz with the reservations of cpu that its sources have, where reservedSystemCPUs has replaced them."""
    found = dict(running)
    argv, known = [word.text for word in kubelet.service.argv], schema.fields(kubelet.minor)
    for name in RESERVED if running.get(RESERVED_CPUS) else ():
        flag = known[name].flag
        text = on_flags(kubelet.minor, flag, argv) if flag else None
        own = lookup(kubelet.configuration, name) if text is None else _read(known[name].kind, flag or "", text)
        cpu = own.get("cpu") if isinstance(own, Mapping) else None
        rest = without_replaced(name, running.get(name), running)
        if cpu is not None or rest != running.get(name):
            found[name] = ({} if cpu is None else {"cpu": cpu}) | (rest or {})
    return found


def restarted(configuration: Mapping[str, Any], found: Iterable[Pending]) -> dict[str, Any]:
    """The configuration that the process has after a restart, from that of the running one."""
    return with_fields(configuration, {one.name: one.brought for one in found})


def with_fields(configuration: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with fields set, dots between their parts; None removes one."""
    changed = dict(configuration)
    for name, value in fields.items():
        inner = changed
        *parents, last = name.split(".")
        for part in parents:
            inner[part] = dict(inner.get(part) or {})
            inner = inner[part]
        inner.pop(last, None)
        if value is not None:
            inner[last] = value
    return changed


def _pending(kubelet: Kubelet, running: Mapping[str, Any], known: schema.KubeletField, younger: bool) -> Pending | None:
    name, flag, now = known.path, known.flag, lookup(running, known.path)
    argv = [word.text for word in kubelet.service.argv]
    text = on_flags(kubelet.minor, flag, argv) if flag and name != GATES else None
    if name == _DRIVER and kubelet.minor >= _RUNTIMES_DRIVER and not (younger and lookup(kubelet.configuration, name)):
        return None
    if text is not None and known.kind in SPECIAL_SYNTAX:
        return None  # its flag has a syntax of its own, `header:value` once for each
    meant = kubelet.gates if name == GATES else _read(known.kind, flag or "", text) if text is not None else None
    meant = lookup(kubelet.configuration, name) if meant is None else meant
    if reads_as_unset(known, meant):
        # A default counts only if a file was written since the start, and if there is a configuration file, which it belongs to.
        if now is None or not younger or kubelet.config_path is None or name in _DEFAULT_OF_ANOTHER:
            return None
        meant = known.default
        if meant is None and not (known.kind.startswith(("map", "list")) or known.kind == "bool" or name in EMPTY_BY_DEFAULT):
            return None
    own, compared = (without_replaced(name, one, running) for one in (meant, now))
    if isinstance(compared, Mapping) and (isinstance(own, Mapping) or own is None) and (name == _HARD or not younger):
        # A kubelet may add to a map: defaults of evictionHard.
        compared = {key: compared[key] for key in compared if key in (own or {})}
    if in_effect(own, compared):
        return None
    merged = name == _HARD and text is None and _over_defaults(kubelet)
    return Pending(name, meant, now, f"--{flag}" if text is not None else "its files", merged)


def _read(kind: str, flag: str, text: str) -> Any:
    try:
        return as_value(kind, flag, text)
    except FormatError:
        return text  # the kubelet will report what is wrong with it


def _over_defaults(kubelet: Kubelet) -> bool:
    """The configuration file's evictionHard drops the defaults that it leaves out, unless mergeDefaultEvictionSettings is set; a drop-in's
    keeps them (cmd/kubelet/app/server.go, loadConfigFile, mergeKubeletConfigurations)."""
    if kubelet.configuration.get("mergeDefaultEvictionSettings") is True:
        return True
    return any(kubelet_config.read(kubelet.seen.data(path) or b"").get(_HARD) is not None for path in kubelet.dropin_paths)


def reads_as_unset(known: schema.KubeletField, value: Any) -> bool:
    """True for what a kubelet treats as not set: nothing, an empty map, list or text; and 0 if it cannot tell 0 from unset."""
    if value is None or (not isinstance(value, (bool, int, float)) and not value):
        return True
    if isinstance(value, bool):
        return False
    zero = value == 0 or (isinstance(value, str) and same_setting(value, "0s"))
    if known.kind.startswith("duration"):
        return zero and known.path not in ZERO_COUNTS
    return zero and known.path in EMPTY_IS_DEFAULT


def kinds(minor: int | None) -> dict[str, str]:
    """The kind of each flag of a kubelet (schema.KubeletFlag.kind), by name; empty for a minor that is not in the table."""
    if minor is None or not schema.OLDEST <= minor <= schema.NEWEST:
        return {}
    return {name: flag.kind for name, flag in schema.flags(minor).items()}


def pending_arguments(kubelet: Kubelet) -> list[flags.FlagDifference] | None:
    """Flags that would differ after a restart, but not those whose values only the node can resolve; None if it may be any flags."""
    hidden = {flags.name_of(word.text) for word in kubelet.service.argv if not word.known}
    found = flags.differences(kubelet.process.argv, [word.text for word in kubelet.service.argv], kinds(kubelet.process.minor))
    return None if "" in hidden else [one for one in found if one.name not in hidden]


def younger_files(kubelet: Kubelet) -> list[str]:
    """The configuration files that were written after the process had started. It reads them only at its start."""
    return [path for path in kubelet.config_paths if kubelet.seen.is_younger(path, kubelet.process)]


def read_once(kubelet: Kubelet) -> dict[str, str]:
    """The paths that READ_ONCE's flags name on the running process's command line, with what each is."""
    named = {path: what for name, what in READ_ONCE.items() if (path := flags.last_flag(kubelet.process.argv, name))}
    return {path: what for path, what in named.items() if path.startswith("/")}


def rewritten(kubelet: Kubelet, times: Mapping[str, int]) -> list[str]:
    """What of `read_once` was written after the kubelet had started, as sentences. `times`: when, by path, in seconds of its clock."""
    started, made = kubelet.seen.started_at(kubelet.process), flags.last_flag(kubelet.process.argv, "bootstrap-kubeconfig")
    least = started + (_BOOTSTRAP_SECONDS if made else 0)
    return [
        f"{path} was written after the kubelet had started, and a restart reads it ({what}): no revert brings the old one back"
        for path, what in read_once(kubelet).items()
        if is_younger(times.get(path, 0), least)
    ]


def not_compared(kubelet: Kubelet) -> list[str]:
    """The fields of younger files that `pending_settings` does not compare, as sentences."""
    found = []
    fields = schema.fields(kubelet.process.minor or 0) if kubelet.is_known else {}
    for path in younger_files(kubelet):
        content = kubelet_config.read(kubelet.seen.data(path) or b"")
        skipped = [name for name in content if _not_compared(name, fields.get(name))]
        if skipped:
            found.append(f"{path} was written after the kubelet had started; a restart applies its values of {', '.join(skipped)}")
    return found


def _not_compared(name: str, known: schema.KubeletField | None) -> bool:
    return f"{name}.".startswith(_SET_ELSEWHERE) or (known is not None and known.kind == "list[object]")
