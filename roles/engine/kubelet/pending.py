"""Pure: what a kubelet's files say otherwise than the process runs with. A restart, for whatever reason, brings it.

Two witnesses: what stands in the files is held against /configz and the process's own arguments; and a file's time against the start of
the process. The first alone shows what differs; but a kubelet fills in what a file leaves out, so that what is *not* in a file counts
only where a file was written after the process had started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roles.engine.editing import FormatError, flags, kubelet_config
from roles.engine.kubelet import schema
from roles.engine.kubelet.facts import Kubelet
from roles.engine.kubelet.settings import FORMS_OF_THEIR_OWN, as_value, on_flags
from roles.engine.kubelet.values import in_effect, lookup, same_setting, shown

GATES = "featureGates"
# Their Go types tell no 0 or "" from none (config/v1beta1/types.go: no pointers), and the default is another.
EMPTY_IS_DEFAULT = frozenset(
    {
        *("address", "port", "registryBurst", "eventBurst", "healthzBindAddress", "nodeLeaseDurationSeconds", "cgroupDriver"),
        *("cpuManagerPolicy", "memoryManagerPolicy", "topologyManagerPolicy", "topologyManagerScope", "hairpinMode", "maxPods"),
        *("maxOpenFiles", "contentType", "kubeAPIBurst", "containerLogMaxSize", "configMapAndSecretChangeDetectionStrategy"),
        *("volumePluginDir", "memoryReservationPolicy", "containerRuntimeEndpoint", "podLogsDir"),
    }
)
# Pointers to durations: 0 is what it says there.
ZERO_COUNTS = frozenset({"cpuCFSQuotaPeriod", "containerLogMonitorInterval"})
# The container runtime gives the driver; what klog is set to stands in flags of many forms.
_TOLD_OTHERWISE = ("cgroupDriver", "logging.")
# Without one in the source, these are 0 to the kubelet, and so left out of /configz.
EMPTY_BY_DEFAULT = frozenset({"evictionMaxPodGracePeriod", "podsPerCore", "readOnlyPort"})
# Defaults that hang on another field (config/v1beta1/defaults.go), or on the node's cgroups.
_DEFAULT_OF_ANOTHER = frozenset({"nodeStatusReportFrequency", "serializeImagePulls", "singleProcessOOMKill"})
_HARD = "evictionHard"
_RESERVED = ("systemReserved", "kubeReserved")
# A file's time is in whole seconds.
_SECOND = 1


@dataclass(frozen=True)
class Pending:
    """One field that a restart changes: what the sources say, and what the process runs with (None: not set). `where`: the flag that
    sets it, or "its files". `merged`: the kubelet puts what it says over defaults, which are in `now`."""

    name: str
    value: Any
    now: Any
    where: str
    merged: bool = False

    @property
    def brought(self) -> Any:
        """What it comes to after a restart."""
        return {**(self.now or {}), **(self.value or {})} if self.merged else self.value

    def __str__(self) -> str:
        return f"{self.name} is {shown(self.value, self.name)} by {self.where}, and the kubelet runs with {shown(self.now, self.name)}"


def pending_settings(kubelet: Kubelet, running: Mapping[str, Any]) -> list[Pending]:
    """Settings that the files have otherwise than the running kubelet (`running`: its /configz). No list of maps is compared, and
    nothing that the container runtime or klog's own flags may say."""
    younger = bool(younger_files(kubelet))
    found = []
    for name, known in schema.fields(kubelet.minor).items():
        if "[]" in name or known.kind in ("object", "list[object]") or name.startswith(_TOLD_OTHERWISE):
            continue
        if (one := _pending(kubelet, running, known, younger)) is not None:
            found.append(one)
    return found


def pending_sentences(kubelet: Kubelet, running: Mapping[str, Any]) -> list[str]:
    """The same as sentences."""
    return [str(one) for one in pending_settings(kubelet, running)]


def _pending(kubelet: Kubelet, running: Mapping[str, Any], known: schema.KubeletField, younger: bool) -> Pending | None:
    name, flag, now = known.path, known.flag, lookup(running, known.path)
    argv = [word.text for word in kubelet.service.argv]
    text = on_flags(kubelet.minor, flag, argv) if flag and name != GATES else None
    if text is not None and known.kind in FORMS_OF_THEIR_OWN:
        return None  # a form of its own, `header:value` once for each
    meant = kubelet.gates if name == GATES else _read(known.kind, flag or "", text) if text is not None else None
    meant = lookup(kubelet.configuration, name) if meant is None else meant
    if reads_as_unset(known, meant):
        # A default counts only where something was written since, and there is a file that the defaults belong to.
        if now is None or not younger or kubelet.config_path is None or name in _DEFAULT_OF_ANOTHER:
            return None
        meant = known.default
        if meant is None and not (known.kind.startswith(("map", "list")) or known.kind == "bool" or name in EMPTY_BY_DEFAULT):
            return None
    compared = now
    if isinstance(now, Mapping) and (isinstance(meant, Mapping) or meant is None):
        if name in _RESERVED and lookup(running, "reservedSystemCPUs"):
            # The kubelet puts the number of these CPUs there itself (cmd/kubelet/app/server.go, run).
            meant, compared = ({key: amount for key, amount in (one or {}).items() if key != "cpu"} for one in (meant, now))
        if name == _HARD or not younger:
            # A kubelet may add to a map: defaults of evictionHard.
            compared = {key: compared[key] for key in compared if key in (meant or {})}
    if in_effect(meant, compared):
        return None
    merged = name == _HARD and text is None and _over_defaults(kubelet)
    return Pending(name, meant, now, f"--{flag}" if text is not None else "its files", merged)


def _read(kind: str, flag: str, text: str) -> Any:
    try:
        return as_value(kind, flag, text)
    except FormatError:
        return text  # the kubelet will say what is the matter with it


def _over_defaults(kubelet: Kubelet) -> bool:
    """evictionHard of the configuration file drops the defaults that it leaves out, unless it asks for them; a drop-in's does not
    (cmd/kubelet/app/server.go, loadConfigFile, mergeKubeletConfigurations)."""
    if kubelet.configuration.get("mergeDefaultEvictionSettings") is True:
        return True
    return any(kubelet_config.read(kubelet.seen.data(path) or b"").get(_HARD) is not None for path in kubelet.dropin_paths)


def reads_as_unset(known: schema.KubeletField, value: Any) -> bool:
    """True for what a kubelet takes for not set: nothing, an empty map, list or text; and 0 where it cannot tell that from none."""
    if value is None or (not isinstance(value, (bool, int, float)) and not value):
        return True
    if isinstance(value, bool):
        return False
    zero = value == 0 or (isinstance(value, str) and same_setting(value, "0s"))
    if known.kind.startswith("duration"):
        return zero and known.path not in ZERO_COUNTS
    return zero and known.path in EMPTY_IS_DEFAULT


def kinds(minor: int | None) -> dict[str, str]:
    """What each flag of a kubelet is (schema.Flag.kind), by its name; none of a minor that the table has not."""
    if minor is None or not schema.OLDEST <= minor <= schema.NEWEST:
        return {}
    return {name: flag.kind for name, flag in schema.flags(minor).items()}


def arguments(kubelet: Kubelet) -> list[str]:
    """Flags that the process would have otherwise after a restart; [] where only the node can tell what its unit comes to."""
    planned = kubelet.service.known_argv
    return [] if planned is None else flags.differences(kubelet.process.argv, planned, kinds(kubelet.process.minor))


def younger_files(kubelet: Kubelet) -> list[str]:
    """The configuration files that were written after the process had started, which reads them at its start only."""
    started = kubelet.seen.started_at(kubelet.process)
    paths = [path for path in (kubelet.config_path, *kubelet.dropin_paths) if path]
    return [path for path in paths if (file := kubelet.seen.file(path)) is not None and file.mtime > started + _SECOND]


def not_compared(kubelet: Kubelet) -> list[str]:
    """What younger files have of fields that `pending_settings` does not compare, as sentences."""
    found = []
    fields = schema.fields(kubelet.process.minor or 0) if kubelet.is_known else {}
    for path in younger_files(kubelet):
        content = kubelet_config.read(kubelet.seen.data(path) or b"")
        passed = [name for name in content if _not_compared(name, fields.get(name))]
        if passed:
            found.append(f"{path} was written after the kubelet had started; a restart brings what it has of {', '.join(passed)}")
    return found


def _not_compared(name: str, known: schema.KubeletField | None) -> bool:
    return f"{name}.".startswith(_TOLD_OTHERWISE) or (known is not None and known.kind == "list[object]")
