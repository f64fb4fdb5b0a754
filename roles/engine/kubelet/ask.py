"""The node's own binaries as the judges of a change: the question shown to them, and what they said. Pure.

A kubelet is started with the candidate and one deliberate bad value: it validates its configuration, complains, and never runs
(cmd/kubelet/app/server.go, NewKubeletCommand; pkg/kubelet/apis/config/validation).
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from roles.engine.kubelet.facts import Kubelet, refuse_waiting
from roles.engine.node import Process
from roles.engine.scripts import templates
from roles.engine.timeouts import patient
from roles.engine.transaction import mask_text

# For one binary to judge its candidate, and for all of a node.
SECONDS = 20
_LISTED = "[A-Za-z0-9:]+=true[|]false [(](ALPHA|BETA) - default=(true|false)[)]"
ALL_SECONDS = 120
_BAD_VALUE = "--max-pods=-1"
_PRODUCT = "Kubernetes "
_VERSION = re.compile(r"v[0-9]{1,3}\.[0-9]{1,4}\.[0-9]{1,6}[0-9A-Za-z.+_~-]{0,60}")
# Exit statuses from here on are not the binary's (timeout(1): 124 to 127, 137), or it was ended by a signal.
_NOT_ASKED = 124
# Of what a binary says so much is told.
_MOST_SAID = 2000
_ONLY_COMPLAINT = re.compile(r"error: invalid configuration: [mM]axPods \(--max-pods\) -1 must not be a negative number[,\"]")


def ask_kubelet(kubelet: Kubelet, argv: Sequence[str], changed: Mapping[str, bytes | None]) -> str:
    """Shell lines that show the changed configuration to the kubelet's binary. `argv` is the command line it would have.

    Raises Refusal for one that ends in a flag without its value: that would swallow the deliberate bad value, and a kubelet would start.
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
    asked = f"kubelet_as_planned {_identity(kubelet.process)} {shlex.join(argv[1:])} {' '.join(extra)}"
    lines.append(f"{asked}; answer kubelet $?")
    return "\n".join(lines)


def ask_component(component: str, process: Process, pod: str, words: Iterable[str]) -> str:
    """A shell line that has a component's binary judge `words`, flags with which it only tells its version; `pod` is NAMESPACE_NAME of
    its static pod on the node."""
    return f"{_inside(component, process, pod)} {shlex.join([*words, '--version'])}; answer {component} $?"


def list_kubelet(process: Process) -> str:
    """A shell line that has the kubelet list the ALPHA and BETA gates it knows, with their defaults (its --help)."""
    return f"kubelet_plainly {_identity(process)} --help; listed kubelet $?"


def list_component(component: str, process: Process, pod: str) -> str:
    """As `list_kubelet`, for a component in its static pod."""
    return f"{_inside(component, process, pod)} --help; listed {component} $?"


def ask_version(component: str, process: Process, pod: str) -> str:
    """A shell line that asks a binary for its version."""
    asked = f"kubelet_plainly {_identity(process)}" if component == "kubelet" else _inside(component, process, pod)
    return f"{asked} --version; version {process.pid} $?"


def _identity(process: Process) -> str:
    return f"{process.pid} {process.start_ticks}"


def _inside(component: str, process: Process, pod: str) -> str:
    return f"inside {component} {_identity(process)} {shlex.quote(pod)}"


def _here_file(name: str, data: bytes) -> str:
    return f"base64 -d >\"$d/{name}\" <<'.'\n{base64.encodebytes(data).decode()}."


def script(questions: Sequence[str], seconds: float = SECONDS) -> str:
    """A script for `sh -s` that asks, each question for so long; "" where there is nothing to ask. It starts nothing and leaves nothing
    behind."""
    if not questions:
        return ""
    return templates().get_template("ask.sh.j2").render(questions=questions, seconds=f"{patient(seconds):.0f}", listed=_LISTED)


def verdicts(lines: Iterable[str]) -> dict[str, str]:
    """What each binary has against its candidate, by component: "" where it takes it. One that gave no answer in its time, or that could
    not be proven to be the node's own when it was its turn, is not among them."""
    found = {}
    for line in lines:
        answer = re.match(r"answer (\S+) (\d+) (\S*)=$", line)
        if answer and int(answer.group(2)) < _NOT_ASKED:
            found[answer.group(1)] = _verdict(answer.group(1), int(answer.group(2)), _decoded(answer.group(3)))
    return found


def listed(lines: Iterable[str]) -> dict[str, str]:
    """What each binary lists of its gates, by component, as text."""
    found = {}
    for line in lines:
        if answer := re.match(r"listed (\S+) (\S*)=$", line):
            found[answer.group(1)] = _decoded(answer.group(2))
    return found


def versions(lines: Iterable[str]) -> dict[int, str]:
    """The versions that binaries told, as v1.36.3, by process; one that told something else is not among them."""
    found: dict[int, str] = {}
    for line in lines:
        if answer := re.match(r"version (\d+) (\S*)=$", line):
            version = as_version(_decoded(answer.group(2)).removeprefix(_PRODUCT))
            found |= {int(answer.group(1)): version} if version else {}
    return found


def as_version(text: str) -> str | None:
    """A version of Kubernetes as it is, v1.36.3 or with more behind it; None for any other text: it comes from a node."""
    return text.strip() if _VERSION.fullmatch(text.strip()) else None


def _decoded(text: str) -> str:
    body = text.rstrip("=")
    return base64.b64decode(body + "=" * (-len(body) % 4)).decode("utf-8", "replace")


def _verdict(component: str, code: int, said: str) -> str:
    if component == "kubelet":
        if _ONLY_COMPLAINT.search(said):
            return ""
    elif code == 0:
        return ""
    return mask_text(_complaint(said))[:_MOST_SAID] or f"it ended with exit status {code} and said nothing"


def _complaint(said: str) -> str:
    """The telling part of what a binary said before it gave up."""
    for pattern in (r'err="((?:[^"\\]|\\.)*)"', r"^Error: (.*)$", r"^panic: (.*)$"):
        if found := re.findall(pattern, said, re.MULTILINE):
            text = str(found[-1])
            return text.replace('\\"', '"').replace("\\n", " ").strip()
    lines = [line for line in said.splitlines() if line.strip() and "deprecated" not in line]
    return lines[-1].strip() if lines else ""
