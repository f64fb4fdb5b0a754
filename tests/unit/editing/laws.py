"""What holds for every editor, whatever the file: stated once, checked for each format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import hypothesis.strategies as st

from roles.engine.editing import FormatError, GateChanges, flags

State = TypeVar("State")
NAMES = ("Alpha", "Beta", "Gamma")

changes = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([True, False, None]), min_size=1)


@dataclass(frozen=True)
class Editor(Generic[State]):
    """`gates`: those a state sets. `rest`: all else it means. `content`: its bytes, for an edit that may only add. `empty_list`: it has
    a gate list without gates and no other: a new gate goes into it, and a list left empty takes its flag along."""

    edit: Callable[[State, GateChanges], State]
    gates: Callable[[State], dict[str, bool]]
    rest: Callable[[State], object]
    content: Callable[[State], dict[str, bytes]]
    empty_list: Callable[[State], bool] = lambda _: False

    def check(self, before: State, wanted: GateChanges) -> bool:
        """All laws of an edit; False where it is refused."""
        try:
            after = self.edit(before, wanted)
        except FormatError:
            return False
        old = self.gates(before)
        expected = {name: value for name, value in old.items() if wanted.get(name, value) is not None}
        expected |= {name: value for name, value in wanted.items() if value is not None}
        assert self.gates(after) == expected, "reading back gives what was written"
        assert self.rest(after) == self.rest(before), "nothing else changed"
        assert self.content(self.edit(after, wanted)) == self.content(after), "editing twice is editing once"
        if expected == old:
            assert self.content(after) == self.content(before), "already as wanted: the same bytes"
        added = {name: None for name in wanted if name not in old}
        if added.keys() == wanted.keys() and self.empty_list(before):
            back = self.edit(after, added)
            assert self.gates(back) == old and self.rest(back) == self.rest(before), "what was added can be taken out again"
        elif added.keys() == wanted.keys():
            assert_only_added(self.content(before), self.content(after))
            assert self.content(self.edit(after, added)) == self.content(before), "what was added can be taken out again"
        return True


def empty_list(argv: Sequence[str]) -> bool:
    """True for a command line with gate lists that are all empty."""
    return bool(flags.flag_values(argv, flags.FEATURE_GATES)) and not flags.effective_gates(argv)


def assert_only_added(before: dict[str, bytes], after: dict[str, bytes]) -> None:
    """Each file is the old one with at most one piece put in."""
    assert before.keys() <= after.keys()
    for path, new in after.items():
        old = before.get(path, b"")
        prefix = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        assert new.endswith(old[prefix:]) and len(new) >= len(old), f"{path}: other bytes changed"
