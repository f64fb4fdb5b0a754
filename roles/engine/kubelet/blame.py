"""A kubelet's complaint about its configuration -> the files and lines that set what the complaint names. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from roles.engine.editing import FormatError, flags, kubelet_config
from roles.engine.kubelet.facts import Kubelet
from roles.engine.transaction import Refusal

# The deliberate bad value of ask.py, in a list of errors.
_DELIBERATE = re.compile(r"(, )?invalid configuration: [mM]axPods \(--max-pods\) -1 must not be a negative number(?(1)|(?:, )?)")
_TYPE = re.compile(r",? path: &TypeMeta\{[^}]*\}")
# Where ask.py writes the candidate.
_ASKED = re.compile(r"/run/daytwo-ask\.\w+/(config|dropins)\b")


def plain(kubelet: Kubelet, said: str) -> str:
    """The complaint without the deliberate bad value, and with the kubelet's own paths instead of the candidate's."""
    own = {"config": kubelet.config_path, "dropins": kubelet.dropin_folder}
    return _ASKED.sub(lambda found: own[found.group(1)] or found.group(0), _TYPE.sub("", _DELIBERATE.sub("", said))).strip()


def places(kubelet: Kubelet, said: str) -> list[str]:
    """`FILE, line N` of each flag, gate and field that `said` names and that the kubelet's current files set; only the files if it names
    none of them."""
    complaint = plain(kubelet, said)
    found = dict.fromkeys([*_on_command_line(kubelet, complaint), *_in_files(kubelet, complaint)])
    return list(found) or _files(kubelet)


def refuses(said: str | None) -> bool:
    """True if a binary has named an error in its files. An exit without output proves nothing: the time limit may have caused it."""
    return bool(said) and not (said or "").startswith("it ended with exit status")


def refusal(host: str, version: str, said: str, where: Sequence[str]) -> Refusal:
    """The refusal to change a component whose binary rejects its current files. `version`: its name and version."""
    return Refusal(
        host,
        f"{version} rejects its current files, without this change: {said} ({'; '.join(where)}). It runs only because it has not been"
        " restarted since they were written",
        "correct them first, then run this again",
    )


def names(said: str, name: str) -> bool:
    """True if a text has this name as a whole word; a kubelet writes some fields with a capital letter."""
    return bool(name) and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", said, re.IGNORECASE) is not None


def _on_command_line(kubelet: Kubelet, complaint: str) -> Iterator[str]:
    argv = kubelet.service.argv
    origins = {id(word.mapped): word.origin for word in argv}
    for name in dict.fromkeys(found for word in argv if (found := flags.name_of(word.text))):
        for flag in flags.find([word.mapped for word in argv], name):
            origin = origins[id(flag.words[-1])]
            gates = _gates(flag) if name == flags.FEATURE_GATES else []
            if re.search(rf"(?<![\w-])--{re.escape(name)}(?![\w-])", complaint) or any(names(complaint, gate) for gate in gates):
                yield f"{origin.path}, line {origin.line}"


def _gates(flag: flags.Flag) -> list[str]:
    try:
        return [name for name, _ in flags.parse_gates(flag.value.string)] if flag.value else []
    except FormatError:
        return []


def _in_files(kubelet: Kubelet, complaint: str) -> Iterator[str]:
    for path in kubelet.config_paths:
        try:
            lines = kubelet_config.lines(kubelet.seen.data(path) or b"")
        except FormatError:
            continue
        for field, line in lines.items():
            if field[0] in ("apiVersion", "kind"):
                continue
            inner = len(field) > 1
            if names(complaint, field[-1]) and (not inner or field[0] == "featureGates" or names(complaint, field[0])):
                yield f"{path}, line {line}"


def _files(kubelet: Kubelet) -> list[str]:
    return list(dict.fromkeys([*kubelet.config_paths, *(word.origin.path for word in kubelet.service.argv)]))
