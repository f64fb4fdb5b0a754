"""Why a change failed, from the last words of whoever failed: what a node has gathered as evidence -> the line that shows the cause. Pure.

A line of evidence says who spoke before it says what. change.sh takes the speaker from the journal's own fields
(systemd.journal-fields(7): _PID) and from the file of a container's log, never from the text:

    journal: kubelet[780]: E1126 ... "command failed" ...     a process of the kubelet's unit, by its PID
    journal: systemd[1]: kubelet.service: Main process ...    systemd
    kube-apiserver[2]: E1126 ... "command failed" ...         log 2 of a container
    before: E1126 ... "RuntimeConfig ... failed" ...          an error of the process before the change, which was healthy with it

Lines without a speaker (`journal: E1126 ...     780 run.go:72] ...`) have the PID that klog prints, or stand between those of systemd.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

# Process 1. Its unit names end its own lines in a journal that does not say who spoke.
_SYSTEMD = "systemd"
_SPOKEN = re.compile(r"(?P<who>[^ \[]+)\[(?P<pid>[0-9]+)\]: (?P<text>.*)")
_BY_SYSTEMD = re.compile(
    r"(Failed to start |Start(ing|ed) |Stopp(ing|ed) |Dependency failed for |Reload(ing|ed) |Condition check |\S+\.(service|slice)(: | - ))"
)
# k8s.io/klog/v2, internal/buffer: severity, month and day, time, thread (klog uses the PID), file and line.
_KLOG = re.compile(r"(?P<level>[IWEF])[0-9]{4} [0-9:.]+ +(?P<pid>[0-9]+) (?P<place>[\w.-]+:[0-9]+)\] (?P<text>.*)")
_CRI = re.compile(r"^\S+Z (stdout|stderr) [FP] ")

# The last word of a process: k8s.io/component-base/cli/run.go, cobra's and Go's own, klog's fatal lines.
_FINAL = re.compile(
    r'^("command failed"|panic: |fatal error: |Error: |unexpected fault address )|"msg":"command failed"|^runtime: out of memory'
)
# What a component or a script prints before it fails, if it is none of klog's lines.
_ERROR = re.compile(
    r"\b(Error|panic|fatal|failed|unrecognized|unknown flag|invalid|err=|cannot|denied|no such|not found|refused)\b|: error", re.I
)

_ENDED = re.compile(
    r"process exited|Failed with result|[Tt]imed out|Failed to start |Failed at step|process of this unit|Start request repeated"
)
_STOPPED = re.compile(r"Stopped |\S+: (Deactivated successfully|Succeeded)\.")

#: What systemd itself says of an end that the process has no words for, the most telling first (systemd.exec(5), PROCESS EXIT CODES;
#: src/core/service.c, src/core/job.c, src/core/unit.c).
_ENDED_BY_SYSTEMD = tuple(
    re.compile(text)
    for text in (
        r"Failed at step \w+ spawning|Failed to (locate executable|execute|load environment files|set up|determine|change)",
        r"[Cc]hanging to the requested working directory failed|bad unit file setting|has no ExecStart=|Unit configuration has fatal error",
        r"killed by the OOM killer|oom-kill",
        r"Watchdog timeout",
        r"(start|start-pre|stop-\S+) operation timed out|State '\S+' timed out",
        r"process exited, code=(killed|dumped)",
        r"process exited, code=exited, status=2[0-4][0-9]/",
        r"Dependency failed for |result 'dependency'",
        r"[Cc]ondition check|start condition|unmet condition|Assertion failed",
    )
)
# Only if nobody has said more.
_SAID_LITTLE = tuple(
    re.compile(text) for text in (r"process exited, code=exited, status=[1-9]", r"Start request repeated|start-limit-hit", r"Failed ")
)

#: What a kubelet says of a pod that it cannot start (pkg/kubelet: kuberuntime, images, config/file.go, volumemanager, lifecycle).
_POD_START = re.compile(
    r"[Ss]andbox|manifest|[Ii]mage|(Create|Run|Start)Container|MountVolume|attach or mount|admi(t|ssion)|reject|Init:|hostPort"
)
# Consequences of the first error.
_AGAIN = re.compile(r"BackOff|back-off")
# A request to the API server: a static pod starts without it (net/url, Error).
_API_REQUEST = re.compile(r'\b(Get|Post|Put|Patch|Delete|Head) \\*"https?://[^ "]*/(api|apis)/')
_NAMES_A_POD = re.compile(r'\b(pod|pods|podUID|path|file)=|"pod":|for pod|manifest')
_PROBE = re.compile(r'"Probe failed"')


@dataclass(frozen=True)
class Said:
    """One line: its number in the evidence, the PID of its speaker (of a container: the number of its log), and its words."""

    number: int
    pid: str
    text: str

    @property
    def klog(self) -> re.Match[str] | None:
        return _KLOG.match(self.text)

    @property
    def bare(self) -> str:
        """The words without klog's prefix."""
        return found["text"].strip() if (found := self.klog) else self.text.strip()

    @property
    def final(self) -> bool:
        level = found["level"] if (found := self.klog) else "E"
        return level == "F" or (level == "E" and bool(_FINAL.search(self.bare)))

    @property
    def error(self) -> bool:
        if found := self.klog:
            return found["level"] in "EF"
        if self.text.startswith("{"):
            return '"err":' in self.text and '"v":' not in self.text
        return bool(_ERROR.search(self.text))

    @property
    def plain(self) -> bool:
        return not self.klog and not self.text.startswith("{")

    @property
    def kind(self) -> str:
        """The same for lines that differ in their values only."""
        place = found["place"].partition(":")[0] if (found := self.klog) else ""
        quoted = re.match(r'"(?:[^"\\]|\\.)*"', self.bare)
        return f"{place} {quoted.group() if quoted else re.sub(r'[0-9a-f]*[0-9][0-9a-f]*', '0', self.bare)[:60]}"


@dataclass
class Spoken:
    """The evidence, by speaker. `processes` and `logs` are in the order of their first line."""

    systemd: list[Said] = field(default_factory=list)
    processes: dict[str, list[Said]] = field(default_factory=dict)
    logs: dict[str, list[Said]] = field(default_factory=dict)
    healthy: set[str] = field(default_factory=set)

    def errors(self, lines: Sequence[Said]) -> Iterator[Said]:
        """The errors among lines, the newest first."""
        return (line for line in reversed(lines) if line.error and line.kind not in self.healthy)

    def ended(self) -> list[list[Said]]:
        """The processes of the unit that ended, the newest first."""
        ends = [line.number for line in self.systemd if _ENDED.search(line.text)]
        return [
            lines
            for lines in reversed(self.processes.values())
            if (ends and ends[-1] > lines[0].number) or any(line.final for line in lines)
        ]


def cause(evidence: Sequence[str]) -> Said | None:
    """The line that shows why the new process failed; None if no line does."""
    spoken = read(evidence)
    for found in (_of_container(spoken), _of_ended(spoken), _of_pod(spoken), _of_running(spoken), _left(spoken)):
        line = next(found, None)
        if line is not None:
            return line
    return None


def read(evidence: Sequence[str]) -> Spoken:
    found = Spoken()
    journal: list[tuple[int, str]] = []
    for number, line in enumerate(evidence):
        source, separator, text = line.partition(": ")
        if not separator:
            continue
        if source == "journal":
            journal.append((number, text))
        elif source == "before":
            found.healthy.add(Said(number, "", text).kind)
        else:
            found.logs.setdefault(source, []).append(Said(number, source, _CRI.sub("", text)))
    _read_journal(found, journal)
    return found


def _read_journal(found: Spoken, journal: Sequence[tuple[int, str]]) -> None:
    named = any(_SPOKEN.match(text) for _, text in journal)
    lines = [_named(number, text) if named else _unnamed(number, text) for number, text in journal]
    old, lines = _without_old(lines, named)
    current = ""
    for line in lines:
        if line.pid == _SYSTEMD:
            found.systemd.append(line)
            current = "" if _ENDED.search(line.text) else current
            continue
        # Without a name: who speaks between two words of systemd is one process.
        current = line.pid or current or f"line {line.number}"
        if current not in old:
            found.processes.setdefault(current, []).append(line)


def _named(number: int, text: str) -> Said:
    spoken = _SPOKEN.match(text)
    if not spoken:
        return Said(number, "0", text)
    return Said(number, _SYSTEMD if spoken["pid"] == "1" else spoken["pid"], spoken["text"])


def _unnamed(number: int, text: str) -> Said:
    if klog := _KLOG.match(text):
        return Said(number, klog["pid"], text)
    return Said(number, _SYSTEMD if _BY_SYSTEMD.match(text) else "", text)


def _without_old(lines: list[Said], named: bool) -> tuple[set[str], list[Said]]:
    """The PIDs of the process that was stopped for the change, and the lines after its end. It may speak while it stops."""
    stopping = [at for at, line in enumerate(lines) if line.pid == _SYSTEMD and line.text.startswith("Stopping ")]
    if not stopping:
        return set(), lines
    first = stopping[0] if named else stopping[-1]
    after = (at for at in range(first, len(lines)) if lines[at].pid == _SYSTEMD and _STOPPED.match(lines[at].text))
    end = next(after, first)
    # klog's PID is text, and 1 in each container of its own.
    return {line.pid for line in lines[:end]} - {"0", _SYSTEMD} if named else set(), lines[end:]


def _of_container(spoken: Spoken) -> Iterator[Said]:
    """A container's last words: of the newest log with a last word; the newest log may be of one that only starts."""
    logs = list(reversed(spoken.logs.values()))
    for lines in logs:
        yield from _last_words(lines)
    for lines in [*logs[1:], *logs[:1]]:
        yield from spoken.errors(lines)


def _of_ended(spoken: Spoken) -> Iterator[Said]:
    """The last words of a process of the unit that ended, or what systemd says of its end."""
    ended = spoken.ended()
    for lines in ended:
        yield from _last_words(lines)
    everything = sorted([*spoken.systemd, *(line for lines in ended for line in lines)], key=lambda line: -line.number)
    yield from _first_match(_ENDED_BY_SYSTEMD, everything)
    for lines in ended:
        yield from spoken.errors(lines)
    for lines in ended:
        yield from (line for line in reversed(lines) if line.plain)


def _of_pod(spoken: Spoken) -> Iterator[Said]:
    """The first error of the kubelet about the pod of the change."""
    lines = [line for process in spoken.processes.values() for line in process if _NAMES_A_POD.search(line.text)]
    errors = [line for line in lines if line.error and line.klog and not _API_REQUEST.search(line.text)]
    yield from (line for line in errors if _POD_START.search(line.text) and not _AGAIN.search(line.text))
    yield from (line for line in errors if line.kind not in spoken.healthy)
    yield from (line for line in reversed(lines) if _PROBE.search(line.text))


def _of_running(spoken: Spoken) -> Iterator[Said]:
    """The last error of a process that still runs, if the healthy one had none like it."""
    ended = [lines[0].number for lines in spoken.ended()]
    for lines in reversed(spoken.processes.values()):
        if lines[0].number not in ended:
            yield from (
                line for line in reversed(lines) if line.error and line.kind not in spoken.healthy and not _API_REQUEST.search(line.text)
            )


def _left(spoken: Spoken) -> Iterator[Said]:
    """Better than nothing: how it ended, and the last line of what ended."""
    yield from _first_match(_SAID_LITTLE, [] if spoken.ended() else list(reversed(spoken.systemd)))
    for lines in [*reversed(spoken.logs.values()), *spoken.ended()]:
        yield from reversed(lines)
    yield from _first_match(_SAID_LITTLE, list(reversed(spoken.systemd)))


def _last_words(lines: Iterable[Said]) -> list[Said]:
    """The last word of one process, if it has one. What a panic prints after it are its goroutines."""
    return [line for line in lines if line.final][-1:]


def _first_match(patterns: Iterable[re.Pattern[str]], lines: Sequence[Said]) -> Iterator[Said]:
    for pattern in patterns:
        yield from (line for line in lines if pattern.search(line.text))
