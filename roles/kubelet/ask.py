"""The node's own binaries as the judges of a change: the question shown to them, and what they said. Pure.

A kubelet is started with the candidate and one deliberate bad value: it validates its configuration, complains, and never runs
(cmd/kubelet/app/server.go, NewKubeletCommand; pkg/kubelet/apis/config/validation).
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from roles.change.mask import mask_text
from roles.kubelet.facts import Kubelet
from roles.patience import patient

# For one binary to judge its candidate, and for all of a node.
SECONDS = 20
_LISTED = "[A-Za-z0-9:]+=true[|]false [(](ALPHA|BETA) - default=(true|false)[)]"
ALL_SECONDS = 120
# A kubelet of 1.28 or 1.29 takes --config-dir only with this in its environment (cmd/kubelet/app/server.go); others do not look.
_ALPHA = "KUBELET_CONFIG_DROPIN_DIR_ALPHA"
_BAD_VALUE = "--max-pods=-1"
_ONLY_COMPLAINT = re.compile(r"error: invalid configuration: [mM]axPods \(--max-pods\) -1 must not be a negative number[,\"]")


def ask_kubelet(kubelet: Kubelet, argv: Iterable[str], changed: Mapping[str, bytes | None]) -> str:
    """Shell lines that show the changed configuration to the kubelet's binary. `argv` is the command line it would have."""
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
    alpha = f"env {_ALPHA}=yes " if kubelet.dropin_folder else ""
    lines.append(f"ask kubelet {alpha}timeout {patient(SECONDS):.0f} {shlex.join(argv)} {' '.join(extra)}")
    return "\n".join(lines)


def ask_listed(component: str, command: str) -> str:
    """A shell line that has a component list the ALPHA and BETA gates it knows, with their defaults (its --help)."""
    return f"listed {component} timeout {SECONDS} {command} --help"


def _here_file(name: str, data: bytes) -> str:
    return f"base64 -d >\"$d/{name}\" <<'.'\n{base64.encodebytes(data).decode()}."


def script(questions: Sequence[str]) -> str:
    """A script for `sh -s` that asks; "" where there is nothing to ask. It starts nothing and leaves nothing behind."""
    if not questions:
        return ""
    return "\n".join(
        [
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; export PATH",
            "umask 077",
            "d=$(mktemp -d /run/daytwo-ask.XXXXXX) || exit 1",
            "trap 'rm -rf \"$d\"' EXIT",
            'ask() { what=$1; shift; said=$("$@" 2>&1 </dev/null); code=$?;'
            ' printf \'answer %s %s %s=\\n\' "$what" "$code" "$(printf %s "$said" | tail -c 8000 | base64 -w 0)"; }',
            f'listed() {{ what=$1; shift; said=$("$@" 2>/dev/null </dev/null | grep -oE "{_LISTED}");'
            ' printf \'listed %s %s=\\n\' "$what" "$(printf %s "$said" | base64 -w 0)"; }',
            *questions,
            "",
        ]
    )


def verdicts(lines: Iterable[str]) -> dict[str, str]:
    """What each binary has against its candidate, by component: "" where it takes it."""
    found = {}
    for line in lines:
        if answer := re.match(r"answer (\S+) (\d+) (\S*)=$", line):
            found[answer.group(1)] = _verdict(answer.group(1), int(answer.group(2)), _decoded(answer.group(3)))
    return found


def listed(lines: Iterable[str]) -> dict[str, str]:
    """What each binary lists of its gates, by component, as text."""
    found = {}
    for line in lines:
        if answer := re.match(r"listed (\S+) (\S*)=$", line):
            found[answer.group(1)] = _decoded(answer.group(2))
    return found


def _decoded(text: str) -> str:
    body = text.rstrip("=")
    return base64.b64decode(body + "=" * (-len(body) % 4)).decode("utf-8", "replace")


def _verdict(component: str, code: int, said: str) -> str:
    if component == "kubelet":
        if _ONLY_COMPLAINT.search(said):
            return ""
    elif code == 0:
        return ""
    return mask_text(_complaint(said)) or f"it ended with exit status {code} and said nothing"


def _complaint(said: str) -> str:
    """The telling part of what a binary said before it gave up."""
    for pattern in (r'err="((?:[^"\\]|\\.)*)"', r"^Error: (.*)$", r"^panic: (.*)$"):
        if found := re.findall(pattern, said, re.MULTILINE):
            text = str(found[-1])
            return text.replace('\\"', '"').replace("\\n", " ").strip()
    lines = [line for line in said.splitlines() if line.strip() and "deprecated" not in line]
    return lines[-1].strip() if lines else ""
