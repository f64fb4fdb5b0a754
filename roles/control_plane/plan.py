"""Pure: a control-plane component and the gates wanted on it -> its new manifest."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Sequence

from roles.change.refusal import Refusal
from roles.control_plane.facts import Component
from roles.formats import FormatError, GateChanges, flags, manifest


def edit(component: Component, wanted: GateChanges) -> bytes:
    """The manifest with the gates as wanted; the same bytes where they are so. Raises Refusal."""
    path = component.file.path
    if component.why_not:
        raise Refusal(component.host, component.why_not)
    if why := component.file.why_not_replaceable():
        raise Refusal(component.host, f"{path} {why}")
    try:
        return manifest.edit_gates(component.data, component.container, wanted, component.process.argv)
    except FormatError as error:
        raise Refusal(component.host, str(error.in_file(path, component.line_of(error.value)))) from None


def argv(component: Component, data: bytes) -> tuple[str, ...] | None:
    """The process's arguments from a manifest; None where they cannot be known: $(VARIABLES) are resolved by the kubelet, and what
    starts the component (a shell, a runner, the image's own entry point) may put other words before them."""
    words = tuple(manifest.container_argv(data, component.container))
    if any("$(" in word for word in words):
        return None
    before, running = component.argv, component.process.argv
    if running == before or _direct(before, component.name):
        return words
    if before and running[-len(before) :] == before:
        return (*running[: -len(before)], *words)
    if before[-len(running) :] == running:
        return words[len(before) - len(running) :]
    return None


def _direct(words: Sequence[str], name: str) -> bool:
    return bool(words) and posixpath.basename(words[0]) == name


def not_taken_up(component: Component, wanted: Collection[str] = ()) -> str:
    """What a restart would bring besides the gates that are `wanted`: the manifest gives other arguments than the process has. "" where it
    brings nothing more, or that cannot be known."""
    running = component.process.argv
    words = component.argv
    if component.why_not or any("$(" in word for word in words):
        return ""
    if not _direct(words, component.name) and words and not words[0].startswith("-"):
        return ""  # something else starts it
    if not _direct(words, component.name):
        running = running[len(running) - len(words) :] if len(words) < len(running) else running
    before, after = flags.effective_gates(running), component.gates
    gates = [name for name in {**before, **after} if name not in wanted and before.get(name) != after.get(name)]
    if not gates and sorted(flags.without_gates(running)) == sorted(flags.without_gates(words)):
        return ""
    difference = [f"-{word}" for word in running if word not in words] + [f"+{word}" for word in words if word not in running]
    return (
        f"{component.name} runs with other arguments than {component.file.path} gives: the manifest was not taken up"
        f" ({' '.join(difference) or 'one twice'})"
    )


def check(component: Component, wanted: Collection[str] = ()) -> None:
    """Refuse an edit that would bring more than the gates that are `wanted`. Raises Refusal."""
    if why := not_taken_up(component, wanted):
        raise Refusal(
            component.host,
            f"a restart would bring more than this change: {why}",
            f"put {component.file.path} back as the process has it, or look in the kubelet's journal why it was not taken up",
        )


def warnings(component: Component, wanted: Collection[str] = ()) -> list[str]:
    """What an operator should know of a component that is not restarted."""
    return [found] if (found := not_taken_up(component, wanted)) else []
