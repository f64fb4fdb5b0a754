"""Pure: a control-plane component and the gates wanted on it -> its new manifest."""

from __future__ import annotations

from roles.change.refusal import Refusal
from roles.control_plane.facts import Component
from roles.formats import FormatError, GateChanges, flags, manifest


def edit(component: Component, wanted: GateChanges) -> bytes:
    """The manifest with the gates as wanted; the same bytes where they are so. Raises Refusal."""
    path = component.file.path
    if why := component.file.why_not_replaceable():
        raise Refusal(component.host, f"{path} {why}")
    try:
        after = manifest.edit_gates(component.data, component.name, wanted)
        pair = flags.swallowed(component.argv, manifest.container_argv(after, component.name))
    except FormatError as error:
        raise Refusal(component.host, str(error.in_file(path))) from None
    if pair:
        raise Refusal(
            component.host,
            f"{path}: {pair[1]} would come behind {pair[0]}, which stands without a value and may take it for one",
            f"write {pair[0]}=VALUE (a switch: {pair[0]}=true)",
        )
    return after


def argv(component: Component, data: bytes) -> tuple[str, ...] | None:
    """The process's arguments from a manifest; None where $(VARIABLES) in them are known to the kubelet only."""
    words = tuple(manifest.container_argv(data, component.name))
    return None if any("$(" in word for word in words) else words


def warnings(component: Component) -> list[str]:
    expected = argv(component, component.data)
    if expected is not None and expected != component.process.argv:
        return [f"{component.name} runs with other arguments than {component.file.path} gives: the manifest was not taken up"]
    return []
