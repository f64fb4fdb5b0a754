"""What a kubelet has against its configuration -> the files and lines that set what it names. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from roles.engine.editing import FormatError, flags, kubelet_config
from roles.engine.kubelet.facts import Kubelet
from roles.engine.transaction import Refusal

# The deliberate bad value of ask.py, in a list of complaints.
_DELIBERATE = re.compile(r"(, )?invalid configuration: [mM]axPods \(--max-pods\) -1 must not be a negative number(?(1)|(?:, )?)")
_TYPE = re.compile(r",? path: &TypeMeta\{[^}]*\}")
# Where ask.py lays the candidate down.
_ASKED = re.compile(r"/run/daytwo-ask\.\w+/(config|dropins)\b")


def plain(kubelet: Kubelet, said: str) -> str:
    """What it said, without the deliberate bad value, and with its own paths in the place of those that it was asked with."""
    own = {"config": kubelet.config_path, "dropins": kubelet.dropin_folder}
    return _ASKED.sub(lambda found: own[found.group(1)] or found.group(0), _TYPE.sub("", _DELIBERATE.sub("", said))).strip()


def places(kubelet: Kubelet, said: str) -> list[str]:
    """`FILE, line N` of each flag, gate and field that `said` names and that the kubelet's files set as they are; the files alone
    where it names none of them."""
    told = plain(kubelet, said)
    found = dict.fromkeys([*_on_command_line(kubelet, told), *_in_files(kubelet, told)])
    return list(found) or _files(kubelet)


def refuses(said: str | None) -> bool:
    """True where a binary has named something that it has against its files; an end without a word may as well be the clock's."""
    return bool(said) and not (said or "").startswith("it ended with exit status")


def refusal(host: str, version: str, said: str, where: Sequence[str]) -> Refusal:
    """Why a component whose binary refuses its files as they are is not changed. `version`: its name and version."""
    return Refusal(
        host,
        f"{version} refuses its files as they are, without this change: {said} ({'; '.join(where)}); it runs only because it was not"
        " started since they were written",
        "correct that first, then run this again",
    )


def names(said: str, name: str) -> bool:
    """True where a text has this name as a word of its own; a kubelet writes some fields with a capital letter."""
    return bool(name) and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", said, re.IGNORECASE) is not None


def _on_command_line(kubelet: Kubelet, told: str) -> Iterator[str]:
    argv = kubelet.service.argv
    origins = {id(word.mapped): word.origin for word in argv}
    for name in dict.fromkeys(found for word in argv if (found := flags.name_of(word.text))):
        for flag in flags.find([word.mapped for word in argv], name):
            origin = origins[id(flag.words[-1])]
            gates = _gates(flag) if name == flags.FEATURE_GATES else []
            if re.search(rf"(?<![\w-])--{re.escape(name)}(?![\w-])", told) or any(names(told, gate) for gate in gates):
                yield f"{origin.path}, line {origin.line}"


def _gates(flag: flags.Flag) -> list[str]:
    try:
        return [name for name, _ in flags.parse_gates(flag.value.string)] if flag.value else []
    except FormatError:
        return []


def _in_files(kubelet: Kubelet, told: str) -> Iterator[str]:
    for path in _configurations(kubelet):
        try:
            lines = kubelet_config.lines(kubelet.seen.data(path) or b"")
        except FormatError:
            continue
        for field, line in lines.items():
            if field[0] in ("apiVersion", "kind"):
                continue
            inner = len(field) > 1
            if names(told, field[-1]) and (not inner or field[0] == "featureGates" or names(told, field[0])):
                yield f"{path}, line {line}"


def _configurations(kubelet: Kubelet) -> list[str]:
    return [*([kubelet.config_path] if kubelet.config_path else []), *kubelet.dropin_paths]


def _files(kubelet: Kubelet) -> list[str]:
    return list(dict.fromkeys([*_configurations(kubelet), *(word.origin.path for word in kubelet.service.argv)]))
