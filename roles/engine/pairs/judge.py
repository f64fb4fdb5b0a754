"""Which pairs do not fit, or are not known to: in one state, or after a change. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from roles.engine import folding
from roles.engine.harmless import one_line
from roles.engine.kubelet.values import shown
from roles.engine.pairs.model import Mismatch, Pair
from roles.engine.pairs.picture import CLUSTER, Picture, Side
from roles.engine.pairs.table import PAIRS
from roles.engine.table import NO_SIGN

_LONGEST = 120


def mismatches(picture: Picture, pairs: Iterable[Pair] = PAIRS) -> list[Mismatch]:
    """The pairs that do not fit in one state, as an audit finds it, and those of which that is not known."""
    return [one for pair in pairs if not pair.one_way for one in _grouped(pair, _found(pair, picture), set())]


def changed(before: Picture, after: Picture, pairs: Iterable[Pair] = PAIRS) -> list[Mismatch]:
    """The pairs that a change touches and that do not fit after it, and those of which that is not known."""
    found: list[Mismatch] = []
    for pair in pairs:
        touched = {("here", place) for place in pair.here.touched(before, after)}
        touched |= set() if pair.one_way else {("there", place) for place in pair.there.touched(before, after)}
        if touched:
            found += [one for one in _grouped(pair, _found(pair, after), touched) if one.touched]
    return found


def concerned(before: Picture, after: Picture) -> list[Pair]:
    """The pairs of whose settings a change sets one. Needs nothing but flags and fields."""
    return [pair for pair in PAIRS if any(_set(side, before, after) for side in (pair.here, pair.there))]


def read_again(owners: Collection[str]) -> list[Pair]:
    """The pairs of which one of these components reads a file again when it restarts, whoever edited it since. Files alone say whether
    they fit."""
    sides = ((pair, (pair.here, pair.there)) for pair in PAIRS)
    return [
        pair
        for pair, both in sides
        if all(side.files and not side.live for side in both) and not pair.one_way and any(side.owner in owners for side in both)
    ]


def _set(side: Side, before: Picture, after: Picture) -> bool:
    """Whether a setting of a side, or a file that it names, may differ after the change."""
    for one, other in zip(before.servers, after.servers, strict=True):
        if one.component == side.owner and any(one.flags.get(name) != other.flags.get(name) for name in side.names):
            return True
        if (
            side.files
            and one.component == side.owner
            and any((one.host, other.on_node(path)) in after.materials for name in side.names for path in other.flags.get(name, ()))
        ):
            return True
    return any(
        one is not other and any(one.value(name) != other.value(name) for name in side.names)
        for one, other in zip(before.kubelets, after.kubelets, strict=True)
        if side.owner == "kubelet"
    )


_Found = tuple[str, str, Any, Any, str]


def _found(pair: Pair, picture: Picture) -> Iterator[_Found]:
    here, there = pair.here.get(picture), pair.there.get(picture)
    for place, value in here.items():
        if pair.own:
            others = {place: there[place]} if place in there else {}
        else:
            others = there
        for other, its in others.items():
            if not pair.unset and (value is None or its is None):
                continue
            if (why := pair.relation(value, its)) is not None:
                yield place, other, value, its, why


def _grouped(pair: Pair, found: Iterable[_Found], touched: set[tuple[str, str]]) -> Iterator[Mismatch]:
    """Places with the same values together."""
    groups: dict[tuple[str, str, str, bool], list[_Found]] = {}
    for one in found:
        hit = ("here", one[0]) in touched or ("there", one[1]) in touched
        groups.setdefault((text(one[2]), text(one[3]), one[4], hit), []).append(one)
    for (_, _, why, hit), members in groups.items():
        here = tuple(dict.fromkeys(one[0] for one in members))
        there = tuple(dict.fromkeys(one[1] for one in members))
        yield Mismatch(pair, here, there, (members[0][2], members[0][3]), why, hit)


# ---- for people


def text(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        parts = [f"{name} {one_line(str(one))}" for name, one in value.items() if one is not None and isinstance(one, (str, int, bool))]
        return ", ".join(parts) or "(not set)"
    if isinstance(value, (list, tuple)):
        value = ", ".join(map(str, value))
    found = one_line(str(value) if not isinstance(value, (bool, type(None))) else shown(value))
    return found if len(found) <= _LONGEST else f"{found[:_LONGEST]}..."


def sentence(one: Mismatch, host: str = "") -> str:
    """What does not fit, with both values, and what happens then; or what is not known. `host`: whose sentence it is, which need not be
    named."""
    sides = []
    for side, places, value in ((one.pair.here, one.here, one.values[0]), (one.pair.there, one.there, one.values[1])):
        named = "" if places in ((host,), (CLUSTER,)) or not places else f" of {folding.listed(places)}"
        shown_value = "" if isinstance(value, dict) and not _plain(value) else f" {text(value)}"
        sides.append(f"{side.label if not isinstance(value, dict) or not _plain(value) else side.owner}{shown_value}{named}")
    if not one.is_known:
        return f"{NO_SIGN}that {' and '.join(sides)} fit [{one.pair.name}]: {one_line(one.why)}"
    return f"{' and '.join(sides)}: {one.why}: {one.pair.broken} [{one.pair.name}]"


def _plain(value: dict[str, Any]) -> bool:
    return any(isinstance(one, (str, int, bool)) for one in value.values())
