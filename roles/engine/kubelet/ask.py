"""The node's own binaries validate a change: the script that asks them, and their answers. Pure.

A kubelet is started with the candidate and one deliberate bad value: it validates its configuration, reports errors, and never runs
(cmd/kubelet/app/server.go, NewKubeletCommand; pkg/kubelet/apis/config/validation).
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from roles.engine.kubelet.facts import Kubelet, refuse_waiting
from roles.engine.kubelet.pending import read_once, rewritten
from roles.engine.node import Process, Replacement
from roles.engine.scripts import decoded_text, filled
from roles.engine.timeouts import patient
from roles.engine.transaction import mask_text

#: The path under which a binary that is asked sees a candidate file, by its number.
CANDIDATE = "/proc/self/fd/3/{}"
# Time limits: for one binary, and for all binaries of a node.
SECONDS = 20
_LISTED = "[A-Za-z0-9:]+=true[|]false [(](ALPHA|BETA) - default=(true|false)[)]"
ALL_SECONDS = 120
_BAD_VALUE = "--max-pods=-1"
_PRODUCT = "Kubernetes "
_VERSION = re.compile(r"v[0-9]{1,3}\.[0-9]{1,4}\.[0-9]{1,6}[0-9A-Za-z.+_~-]{0,60}")
# Exit statuses from here on are not the binary's own: they are from timeout(1) (124 to 127, 137), or from a signal.
_NO_ANSWER = 124
# How many characters of a binary's output are reported.
_MOST_SAID = 2000
_ONLY_COMPLAINT = re.compile(r"error: invalid configuration: [mM]axPods \(--max-pods\) -1 must not be a negative number[,\"]")


def ask_kubelet(kubelet: Kubelet, argv: Sequence[str], changed: Mapping[str, bytes | None]) -> str:
    """Shell lines that let the kubelet's binary validate the changed configuration. `argv` is its future command line.

    Raises Refusal if `argv` ends in a flag without its value: the flag would consume the deliberate bad value, and a kubelet would start.
    """
    refuse_waiting(kubelet.seen.host, argv)
    lines = []
    extra = [_BAD_VALUE]
    if kubelet.config_path:
        data = changed.get(kubelet.config_path, kubelet.seen.data(kubelet.config_path)) or b""
        lines.append(_here_file("config", data))
        extra.append('--config="$d/config"')
    if kubelet.dropin_folder:
        lines.append('mkdir "$d/dropins"')
        for number, path in enumerate(kubelet.dropins(changed)):
            data = changed.get(path, kubelet.seen.data(path)) or b""
            if data:
                lines.append(_here_file(f"dropins/{number:04d}.conf", data))
        extra.append('--config-dir="$d/dropins"')
    lines.append(f"config_dir_alpha={'yes' if kubelet.dropin_folder else ''}")
    command = f"kubelet_as_planned {_identity(kubelet.process)} {shlex.join(argv[1:])} {' '.join(extra)}"
    lines.append(f"{command}; answer kubelet $?")
    lines += [f"written {shlex.quote(path)}" for path in read_once(kubelet)]
    return "\n".join(lines)


def ask_with_files(component: str, process: Process, pod: str, words: Sequence[str], files: Sequence[bytes] = (), name: str = "") -> str:
    """Shell lines that start a component's binary with these words, which must end by itself: it prints its version, or refuses a value.
    The answer has the name `name` (the component's, if that is ""). It reads `files` as CANDIDATE.format(0) and so on."""
    label = name or component
    if not files:
        return f"{_inside(component, process, pod)} {shlex.join(words)}; answer {label} $?"
    folder = f"files.{label.replace('/', '.')}"
    lines = [f'mkdir "$d/{folder}"', *(_here_file(f"{folder}/{number}", data) for number, data in enumerate(files))]
    # Only through this descriptor: the directory above is root's alone.
    lines.append(f'chmod 0755 "$d/{folder}"; chmod 0644 "$d/{folder}"/*')
    lines.append(f'{_inside(component, process, pod)} {shlex.join(words)} 3<"$d/{folder}"; answer {label} $?')
    return "\n".join(lines)


def list_flags(component: str, process: Process, pod: str) -> str:
    """A shell line that lets a component list its flags, one on each line (its --help). It does not list those that are deprecated."""
    return f"{_inside(component, process, pod)} --help; flag_lines {component} $?"


def list_kubelet(process: Process) -> str:
    """A shell line that lets the kubelet list the ALPHA and BETA gates it knows, with their defaults (its --help)."""
    return f"kubelet_plainly {_identity(process)} --help; listed kubelet $?"


def list_component(component: str, process: Process, pod: str) -> str:
    """As `list_kubelet`, for a component in its static pod."""
    return f"{_inside(component, process, pod)} --help; listed {component} $?"


def ask_version(component: str, process: Process, pod: str) -> str:
    """A shell line that asks a binary for its version."""
    command = f"kubelet_plainly {_identity(process)}" if component == "kubelet" else _inside(component, process, pod)
    return f"{command} --version; version {process.pid} $?"


def ask_replacement(process: Process) -> str:
    """A shell line that asks the file which replaced the running kubelet's for its version, and whether it has the same bytes."""
    return f"kubelet_on_disk {_identity(process)} --version; replacement {process.pid} $?"


def _identity(process: Process) -> str:
    return f"{process.pid} {process.start_ticks}"


def _inside(component: str, process: Process, pod: str) -> str:
    return f"inside {component} {_identity(process)} {shlex.quote(pod)}"


def _here_file(name: str, data: bytes) -> str:
    return f"base64 -d >\"$d/{name}\" <<'.'\n{base64.encodebytes(data).decode()}."


def script(questions: Sequence[str], seconds: float = SECONDS) -> str:
    """A script for `sh -s` that asks the questions, each for at most `seconds`; "" if there are none. It starts no component and leaves
    no files behind."""
    if not questions:
        return ""
    return filled("ask.sh.j2", questions=questions, seconds=f"{patient(seconds):.0f}", listed=_LISTED)


_ANSWER = r"answer (\S+) ([0-9]+) (\S*)="


def _matching(pattern: str, lines: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """The fields of each line of a kind."""
    return (found.groups() for line in lines if (found := re.fullmatch(pattern, line)))


def verdicts(lines: Iterable[str]) -> dict[str, str]:
    """Each binary's complaint about its candidate, by component: "" if it accepts it. A binary is missing if it did not answer in time,
    or if it could not be proven to be the node's own."""
    found = _matching(_ANSWER, lines)
    return {name: _verdict(name, int(code), decoded_text(said)) for name, code, said in found if int(code) < _NO_ANSWER}


def rewritten_files(kubelet: Kubelet, lines: Iterable[str]) -> list[str]:
    """What the kubelet reads once and somebody has written since it started, as sentences (pending.READ_ONCE)."""
    return rewritten(kubelet, {decoded_text(path): int(time) for time, path in _matching(r"written ([0-9]+) (\S+)=", lines)})


def listed(lines: Iterable[str]) -> dict[str, str]:
    """The gates that each binary lists, by component, as text."""
    return {name: decoded_text(said) for name, said in _matching(r"listed (\S+) (\S*)=", lines)}


def flag_lines(lines: Iterable[str]) -> dict[str, str]:
    """The lines about flags in each binary's --help, by component, as text."""
    return {name: decoded_text(said) for name, said in _matching(r"flags (\S+) (\S*)=", lines)}


def deprecated(lines: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """What each binary says of deprecated flags among those that it was asked about (pflag, MarkDeprecated), by component."""
    found = {}
    for name, _, said in _matching(_ANSWER, lines):
        texts = re.findall(r"^Flag (--\S+ has been deprecated.*)$", decoded_text(said), re.MULTILINE)
        found[name] = tuple(dict.fromkeys(mask_text(one)[:_MOST_SAID] for one in texts))
    return found


def versions(lines: Iterable[str]) -> dict[int, str]:
    """The versions that binaries printed, as v1.36.3, by PID; a binary that printed something else is missing."""
    found = _matching(r"version ([0-9]+) (\S*)=", lines)
    return {int(pid): version for pid, said in found if (version := as_version(decoded_text(said).removeprefix(_PRODUCT)))}


def replacements(lines: Iterable[str]) -> dict[int, Replacement]:
    """What replaced the running files, by PID. A file that could not be proven to be the node's own has no version."""
    found = _matching(r"replacement ([0-9]+) (same|other) (\S*)=", lines)
    return {int(pid): Replacement(as_version(decoded_text(said).removeprefix(_PRODUCT)), same == "same") for pid, same, said in found}


def as_version(text: str) -> str | None:
    """A version of Kubernetes, such as v1.36.3, with any suffix; None for any other text, because it comes from a node."""
    return text.strip() if _VERSION.fullmatch(text.strip()) else None


def _verdict(component: str, code: int, said: str) -> str:
    if component == "kubelet":
        if _ONLY_COMPLAINT.search(said):
            return ""
    elif code == 0:
        return ""
    return mask_text(_complaint(said))[:_MOST_SAID] or f"it ended with exit status {code} and printed nothing"


def _complaint(said: str) -> str:
    """The error in a binary's output."""
    for pattern in (r'err="((?:[^"\\]|\\.)*)"', r"^Error: (.*)$", r"^panic: (.*)$"):
        if found := re.findall(pattern, said, re.MULTILINE):
            text = str(found[-1])
            return text.replace('\\"', '"').replace("\\n", " ").strip()
    lines = [line for line in said.splitlines() if line.strip() and "deprecated" not in line]
    return lines[-1].strip() if lines else ""
