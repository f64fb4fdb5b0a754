"""Pure: a control-plane component and its desired gates -> its new manifest, and the change to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from roles.engine.control_plane.facts import Component
from roles.engine.editing import FlagChanges, FormatError, GateChanges, flags, manifest, manifest_parts
from roles.engine.kubelet import ask
from roles.engine.transaction import Change, FileEdit, Refusal, change_id


def edit(component: Component, wanted: GateChanges) -> bytes:
    """The manifest with the desired gates; the same bytes if it has them. Raises Refusal."""
    return _edit(
        component,
        lambda data: manifest_parts.edit(data, component.container, {flags.FEATURE_GATES: flags.gates_of(component.argv, wanted)}, {}),
    )


def edit_parts(component: Component, changes: FlagChanges, mounts: Mapping[str, bool], stamp: str | None = None) -> bytes:
    """The manifest with the desired flags, mounts and annotation (manifest_parts.edit); the same bytes if it has them. Raises Refusal."""
    return _edit(component, lambda data: manifest_parts.edit(data, component.container, changes, mounts, stamp))


def _edit(component: Component, make: Callable[[bytes], bytes]) -> bytes:
    path = component.file.path
    if why := component.file.why_not_replaceable():
        raise Refusal(component.host, f"{path} {why}")
    try:
        after = make(component.data)
        pair = flags.swallowed(component.argv, manifest.container_argv(after, component.container))
    except FormatError as error:
        raise Refusal(component.host, str(error.in_file(path))) from None
    if pair:
        raise Refusal(
            component.host,
            f"{path}: {pair[1]} would follow {pair[0]}, which has no value and may take it as its value",
            f"write {pair[0]}=VALUE (a switch: {pair[0]}=true)",
        )
    return after


def change(component: Component, after: bytes, unit: str, run_id: str, summary: str, files: Sequence[FileEdit] = ()) -> Change:
    """The change of a component's manifest to `after`, which recreates its pod, and of the `files` that are mounted into it. `unit` is the
    kubelet's. The manifest is last: the kubelet reads it at once."""
    return Change(
        id=change_id(run_id, component.host, component.name),
        node=component.host,
        component=component.name,
        kind="static-pod",
        unit=unit,
        summary=summary,
        files=(*files, FileEdit(component.file.path, component.data, after)),
        health_url=component.health_url,
        old_argv=argv(component, component.data),
        new_argv=argv(component, after),
        pod=component.log_name,
        container=component.container,
    )


def argv(component: Component, data: bytes) -> tuple[str, ...] | None:
    """The process's arguments from a manifest; None if they have $(VARIABLES), which only the kubelet knows."""
    words = tuple(manifest.container_argv(data, component.container))
    return None if any("$(" in word for word in words) else words


def warnings(component: Component) -> list[str]:
    """What an operator should know before this component is recreated."""
    found = [another] if (another := another_image(component)) else []
    expected = argv(component, component.data)
    if expected is None or not (others := flags.differences(component.process.argv, expected)):
        return found
    return [
        *found,
        f"{component.name}'s arguments differ from {component.file.path}: the kubelet has not applied the manifest. A change also"
        f" applies: {'; '.join(map(str, others))}",
    ]


def image_version(component: Component) -> str | None:
    """The version that the image in a component's manifest is tagged with, as v1.36.3; None if it has no such tag, or a digest alone."""
    try:
        image = manifest.image(component.data, component.container)
    except FormatError:
        return None
    return ask.as_version(image.partition("@")[0].rpartition(":")[2])


def another_image(component: Component) -> str:
    """What a change of the manifest brings besides, if its image has another version than the process; "" if it has not."""
    now, then = component.process.version, image_version(component)
    if now is None or then is None or _plain(now) == _plain(then):
        return ""
    return f"{component.file.path} has an image that does not run: {component.name} {now} -> {then}"


def refuse_another_image(component: Component, *, consent: bool) -> Refusal | None:
    """Why this manifest must not be changed by the way; None with the operator's consent, or if its image is the one that runs."""
    if consent or not (another := another_image(component)):
        return None
    return Refusal(
        component.host,
        f"{another}; a change of the manifest starts it, and a revert restores the file with that image",
        "find out first why the kubelet has not started it (its journal), or restore the image in the file; or let this run start it:"
        " --data allow_new_binary=true",
    )


def _plain(version: str) -> str:
    """Without a vendor's suffix."""
    return re.split(r"[-+]", version)[0]


def places(component: Component, said: str) -> list[str]:
    """`FILE, line N` of each argument of its manifest that `said` names, by a gate or by the flag; only the file if it names none."""
    path = component.file.path
    try:
        lines = manifest.argument_lines(component.data, component.name)
    except FormatError:
        lines = []
    words = set(re.findall(r"[\w-]+", said))
    found = [line for word, line in lines if words & {*re.findall(r"\w+(?==)", word.partition("=")[2]), f"--{flags.name_of(word)}"}]
    return [f"{path}, line {line}" for line in dict.fromkeys(found)] or [path]
