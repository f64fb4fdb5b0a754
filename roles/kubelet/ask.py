"""The node's own binaries as the judges of a change: the question shown to them, and what they said. Pure.

A kubelet is started with the candidate and one deliberate bad value: it validates its configuration, complains, and never runs
(cmd/kubelet/app/server.go, NewKubeletCommand; pkg/kubelet/apis/config/validation).
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from roles.change.refusal import Refusal
from roles.formats import FormatError, flags, kubelet_config
from roles.kubelet.facts import Kubelet
from roles.observe import Process
from roles.patience import patient
from roles.scripts import templates

# What is said of the files as they are, beside what is said of the candidate.
_NOW = "-now"
AS_IT_IS = f"kubelet{_NOW}"
# For one binary to judge its candidate, and for all of a node.
SECONDS = 20
_LISTED = "[A-Za-z0-9:]+=true[|]false [(](ALPHA|BETA) - default=(true|false)[)]"
ALL_SECONDS = 120
# A kubelet of 1.28 or 1.29 takes --config-dir only with this in its environment (cmd/kubelet/app/server.go); others do not look.
_ALPHA = "KUBELET_CONFIG_DROPIN_DIR_ALPHA"
_BAD_VALUE = "--max-pods=-1"
_ONLY_COMPLAINT = re.compile(r"error: invalid configuration: [mM]axPods \(--max-pods\) -1 must not be a negative number[,\"]")


def ask_kubelet(kubelet: Kubelet, argv: Sequence[str], changed: Mapping[str, bytes | None]) -> str:
    """Shell lines that show the changed configuration to the kubelet's binary. `argv` is the command line it would have.

    Where it refuses that, it is shown the files as they are too, under the name AS_IT_IS: what it has against those is no fault of the
    change.

    Asked is the file that the running kubelet was started from, and only while none but root can change it. Raises Refusal where the
    unit starts something else, or where a word behind `argv` would not be read as a flag.
    """
    kubelet.started_directly()
    try:
        flags.check_end(argv)
        flags.check_taken(argv, kubelet.sources.switches, kubelet.process.argv)
    except FormatError as error:
        raise Refusal(kubelet.seen.host, f"the kubelet cannot be asked about a change: {error}") from None
    before = kubelet.service.known_argv or kubelet.process.argv
    again = []
    with suppress(FormatError):
        # Without the deliberate bad value a kubelet would run.
        flags.check_end(before)
        flags.check_taken(before, kubelet.sources.switches, kubelet.process.argv)
        again = _shown(kubelet, AS_IT_IS, "now-", before, {})
    return "\n".join(
        [
            f"if own_kubelet {kubelet.process.pid} {kubelet.process.start_ticks}; then",
            *_shown(kubelet, "kubelet", "", argv, changed),
            f'if ! printf %s "$said" | grep -qE {shlex.quote(_ONLY_COMPLAINT.pattern)}; then :',
            *again,
            "fi",
            'listed kubelet timeout -k 2 "$limit" "$program" --help',
            "else unasked kubelet; fi",
        ]
    )


def _shown(kubelet: Kubelet, name: str, lead: str, argv: Sequence[str], changed: Mapping[str, bytes | None]) -> list[str]:
    """One question. `lead` keeps the files of several apart."""
    lines = []
    extra = [_BAD_VALUE]
    if kubelet.config_path:
        data = changed.get(kubelet.config_path, kubelet.seen.data(kubelet.config_path)) or b""
        lines.append(_here_file(f"{lead}config", data))
        extra.append(f'--config="$d/{lead}config"')
    if kubelet.dropin_folder:
        lines.append(f'mkdir "$d/{lead}dropins"')
        for number, path in enumerate(kubelet.dropins(changed)):
            data = changed.get(path, kubelet.seen.data(path)) or b""
            if data:
                lines.append(_here_file(f"{lead}dropins/{number:04d}.conf", data))
        extra.append(f'--config-dir="$d/{lead}dropins"')
    alpha = f"env {_ALPHA}=yes " if kubelet.dropin_folder else ""
    return [*lines, f'ask {name} {alpha}timeout -k 2 "$limit" "$program" {shlex.join(argv[1:])} {" ".join(extra)}']


def ask_component(name: str, process: Process, words: Sequence[str], now: Sequence[str] | None = None) -> str:
    """Shell lines that show `words` to a static pod's program, in its container and without any rights. It tells its version, or what
    it has against them, and it lists its gates. Where it refuses them it is shown `now`, those of its manifest as it is, too."""
    return "\n".join(
        [
            f"if own_component {process.pid} {process.start_ticks} {shlex.quote(process.pod_uid or '')}; then",
            f'ask {name} inside {process.pid} "$program" {shlex.join(words)} --version',
            *([] if now is None else [f'[ "$code" = 0 ] || ask {name}{_NOW} inside {process.pid} "$program" {shlex.join(now)} --version']),
            f'listed {name} inside {process.pid} "$program" --help',
            f"else unasked {name}; fi",
        ]
    )


def blamed(places: Mapping[str, str], said: str) -> str:
    """Where the files have what a binary complains of: `places` are FILE:LINE by what stands there, the name of a gate, a field or a flag.
    The longest name that it says counts; "" where it says none."""
    spoken = [name for name in places if re.search(rf"(?<![A-Za-z0-9_.-]){re.escape(name)}(?![A-Za-z0-9_-])", said, re.IGNORECASE)]
    return places[max(spoken, key=len)] if spoken else ""


def places(kubelet: Kubelet) -> dict[str, str]:
    """FILE:LINE of each gate, field and flag that the kubelet's files set, by its name. The file that is read last counts."""
    found: dict[str, str] = {}
    for path in (*([kubelet.config_path] if kubelet.config_path else []), *kubelet.dropin_paths):
        for field, line in kubelet_config.lines(kubelet.seen.data(path) or b"").items():
            found |= {name: f"{path}:{line}" for name in (field[-1], ".".join(field)) if len(name) > 1}
    for word in kubelet.service.argv:
        place = f"{word.origin.path}:{word.origin.line}"
        if flag := re.match(r"--([A-Za-z0-9_-]+)", word.text):
            found[flag.group(1)] = found[f"--{flag.group(1)}"] = place
        found |= {gate: place for gate in kubelet.flag_gates if f"{gate}=" in word.text}
    return found


def refused_now(host: str, component: str, version: str, said: str, place: str) -> Refusal:
    """The files as they are would keep the component from starting: that is no fault of the wish."""
    return Refusal(
        host,
        f"the files of {component} as they are would already be refused by {component} {version}: {said}"
        + (f" ({place})" if place else ""),
        f"fix {place or 'that'} first; it is not what this run would change",
    )


def _here_file(name: str, data: bytes) -> str:
    return f"base64 -d >\"$d/{name}\" <<'.'\n{base64.encodebytes(data).decode()}."


def script(questions: Sequence[str], proc: str = "/proc") -> str:
    """A script for `sh -s` that asks; "" where there is nothing to ask. It starts nothing and leaves nothing behind."""
    if not questions:
        return ""
    return "\n".join(
        [
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; export PATH",
            f"proc={shlex.quote(proc)} limit={patient(SECONDS):.0f}",
            *(templates().get_template(name).render() for name in ("own.sh.j2", "asking.sh.j2")),
            "umask 077",
            "d=$(mktemp -d /run/daytwo-ask.XXXXXX) || exit 1",
            "trap 'rm -rf \"$d\"' EXIT",
            'ask() { what=$1; shift; said=$("$@" 2>&1 </dev/null); code=$?;'
            ' printf \'answer %s %s %s=\\n\' "$what" "$code" "$(printf %s "$said" | tail -c 8000 | base64 -w 0)"; }',
            f'listed() {{ what=$1; shift; said=$("$@" 2>/dev/null </dev/null | grep -oE "{_LISTED}");'
            ' printf \'listed %s %s=\\n\' "$what" "$(printf %s "$said" | base64 -w 0)"; }',
            'unasked() { printf \'unasked %s %s=\\n\' "$1" "$(printf %s "$why" | base64 -w 0)"; }',
            *questions,
            "",
        ]
    )


def verdicts(lines: Iterable[str]) -> dict[str, str]:
    """What each binary has against its candidate, by component: "" where it takes it."""
    return {name: said for name, said in _answers(lines) if not name.endswith(_NOW)}


def verdicts_now(lines: Iterable[str]) -> dict[str, str]:
    """What each binary that refuses its candidate has against the files as they are, by component: "" where it takes them."""
    return {name.removesuffix(_NOW): said for name, said in _answers(lines) if name.endswith(_NOW)}


def _answers(lines: Iterable[str]) -> list[tuple[str, str]]:
    found = {}
    for line in lines:
        if answer := re.match(r"answer (\S+) (\d+) (\S*)=$", line):
            found[answer.group(1)] = _verdict(answer.group(1), int(answer.group(2)), _decoded(answer.group(3)))
    return list(found.items())


def unasked(lines: Iterable[str]) -> dict[str, str]:
    """Why a binary was not asked, by component."""
    return {answer.group(1): _decoded(answer.group(2)) for answer in (re.match(r"unasked (\S+) (\S*)=$", line) for line in lines) if answer}


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
    if component in ("kubelet", AS_IT_IS):
        if _ONLY_COMPLAINT.search(said):
            return ""
    elif code == 0:
        return ""
    return _complaint(said) or f"it ended with exit status {code} and said nothing"


def _complaint(said: str) -> str:
    """The telling part of what a binary said before it gave up."""
    for pattern in (r'err="((?:[^"\\]|\\.)*)"', r"^Error: (.*)$", r"^panic: (.*)$"):
        if found := re.findall(pattern, said, re.MULTILINE):
            text = str(found[-1])
            return text.replace('\\"', '"').replace("\\n", " ").strip()
    lines = [line for line in said.splitlines() if line.strip() and "deprecated" not in line]
    return lines[-1].strip() if lines else ""
