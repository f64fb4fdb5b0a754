"""Pure: compares the desired flags and files of one component with its manifest, its process and its node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from roles.control_plane_flags.model import DesiredFile, DesiredFlags
from roles.engine.control_plane import Component
from roles.engine.editing import FlagValues, any_flag
from roles.engine.node import Observation
from roles.engine.proof.effective import UnmetFlag, unmet_flags


@dataclass(frozen=True)
class UnmetFile:
    """A file of the node that differs from the desired one, or that the component's process has not read. No Finding: a
    desired value has no rule and no severity, as UnmetFlag beside it."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path} {self.why}"


def wanted_of(host: str, component: str, desired: DesiredFlags) -> Mapping[str, FlagValues]:
    """The desired flags that concern a component of a host; {} if there are none."""
    return desired.of(component) if desired.includes(host) else {}


def unmet(component: Component, wanted: Mapping[str, FlagValues]) -> list[UnmetFlag]:
    """The flags whose values on a component differ from the desired ones: in its process, and in its manifest, which the next start
    reads."""
    running = unmet_flags(component.name, wanted, component.process.argv, "its arguments")
    there = {one.flag for one in running}
    return [
        *running,
        *(one for one in unmet_flags(component.name, wanted, component.argv, "the arguments in its manifest") if one.flag not in there),
    ]


def unmet_files(seen: Observation, components: Mapping[str, Component], wanted: DesiredFlags) -> list[UnmetFile]:
    """The files that differ from the desired ones, and those that are newer than a process whose flags name them."""
    found = []
    for path, desired in wanted.control_plane_files.items() if wanted.includes(seen.host) else ():
        readers = [one for one in components.values() if naming(any_flag.every(one.argv), path)]
        late = [one.name for one in readers if seen.is_younger(path, one.process)]
        now = seen.file(path)
        if now is None:
            found.append(UnmetFile(path, "was not read"))
        elif desired is None:
            found += [] if now.kind == "none" else [UnmetFile(path, "exists, wanted absent")]
        elif now.data != desired.content:
            found.append(UnmetFile(path, "does not exist" if now.kind == "none" else "has another content"))
        elif wrong := wrong_attributes(seen, path, desired):
            found.append(UnmetFile(path, wrong))
        elif late:
            found.append(UnmetFile(path, f"was written after {late[0]} started, which has the file that was there before"))
    return found


def naming(flags: Mapping[str, tuple[str, ...]], path: str) -> list[str]:
    """The flags that name a file."""
    return [name for name, values in flags.items() if any(path in re.split(r"[,=:]", value) for value in values)]


def wrong_attributes(seen: Observation, path: str, desired: DesiredFile) -> str:
    """How mode and owner of an existing file differ from the desired ones; "" if they do not."""
    now = seen.file(path)
    if now is None or now.kind == "none":
        return ""
    owner = f"{now.uid}:{now.gid}"
    parts = [f"has mode {now.mode:04o}, wanted {desired.mode:04o}"] if desired.mode not in (None, now.mode) else []
    parts += [f"belongs to {owner}, wanted {desired.owner}"] if desired.owner not in (None, owner) else []
    return " and ".join(parts)
