"""What a lane does next. Pure: knows no pytest, no xdist, no lab and no clock.

The unit of work is what a module has for one shape of lab. A lane takes the longest unit of the first of its shapes that is worth a
lab, and is asked again when that unit is done. A lab costs about a minute to make, so a lane begins with another shape only where
more than `MAKING` seconds of it are left for each lane that has the shape, or where nobody else has such a lab.

A lane may wait for another one, `c:small@u`: it helps once lane u has nothing left to do, and all that is left is for labs of its own
shapes. Then what u and the larger labs needed of the machine is free for one more lab.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

# The lane of the lab that has no name: a developer's own, by `make lab`.
PLAIN = "lab"
# The shape of tests that need no lab: nothing is made for them.
NONE = "none"
# Seconds of work, for each lane, below which another lab is not worth its making.
MAKING = 90.0
# What a test in a lab counts as that was never timed, in seconds: long, so that it starts early.
UNKNOWN = 300.0
_LANE = re.compile(r"([a-z][a-z0-9]*):([a-z]+(?:\+[a-z]+)*)(?:@([a-z][a-z0-9]*))?")


class LanesError(ValueError):
    """Lanes that cannot be run as they are given; one sentence that says why."""


@dataclass(frozen=True)
class Lane:
    """One worker: its name is that of its lab, its shapes are in the order in which it takes them; `after` is the lane that it waits
    for (empty: none)."""

    name: str
    shapes: tuple[str, ...]
    after: str = ""

    @property
    def has_lab(self) -> bool:
        return self.shapes != (NONE,)

    @property
    def lab(self) -> str:
        """The name of its lab, as the variable LAB has it."""
        return "" if self.name == PLAIN else self.name


def parse(text: str, known: Iterable[str]) -> list[Lane]:
    """Lanes from `w:wide+small,u:none,c:small@u`. Raises LanesError for what is no such list, a name that comes twice, a shape that is
    not known, `none` beside a shape of labs: such tests would wait for a lab to be made, and a lane that waits for none that begins, or
    alone has its shape."""
    lanes = []
    for part in text.split(","):
        found = _LANE.fullmatch(part.strip())
        if not found:
            raise LanesError(f"--lanes: {part.strip()!r} is not NAME:SHAPE or NAME:SHAPE+SHAPE, as in w:wide+small,u:none")
        lanes.append(Lane(found[1], tuple(dict.fromkeys(found[2].split("+"))), found[3] or ""))
    names = [lane.name for lane in lanes]
    for lane in lanes:
        if names.count(lane.name) > 1:
            raise LanesError(f"--lanes: the lane {lane.name} is named twice")
        strange = [shape for shape in lane.shapes if shape not in {*known, NONE}]
        if strange:
            raise LanesError(f"--lanes: lane {lane.name}: {strange[0]} is no shape; there are {', '.join([*known, NONE])}")
        if NONE in lane.shapes and lane.has_lab:
            raise LanesError(f"--lanes: lane {lane.name}: {NONE} is a lane of its own, without a lab")
        if lane.after and lane.after not in [other.name for other in lanes if not other.after]:
            raise LanesError(f"--lanes: lane {lane.name}: it waits for {lane.after}, and no lane of this name begins at once")
        alone = [shape for shape in lane.shapes if not any(shape in other.shapes for other in lanes if not other.after)]
        if alone:
            raise LanesError(f"--lanes: lane {lane.name}: it only helps, and no other lane has the shape {alone[0]}")
    return lanes


@dataclass(eq=False)
class Unit:
    """The tests of one module that need one shape of lab, in their order; `seconds` is what they are likely to take."""

    module: str
    shape: str
    tests: list[str]
    seconds: float = 0.0

    @property
    def title(self) -> str:
        return f"{self.module} ({self.shape})"


def units(shapes: Mapping[str, str], took: Mapping[str, float]) -> list[Unit]:
    """The units of these tests (node id -> shape), in the order of their first tests; `took` has the seconds of tests that take any."""
    found: dict[tuple[str, str], Unit] = {}
    for test, shape in shapes.items():
        module = test.partition("::")[0]
        unit = found.setdefault((module, shape), Unit(module, shape, []))
        unit.tests.append(test)
        unit.seconds += took.get(test, 0.0 if shape == NONE else UNKNOWN)
    return list(found.values())


@dataclass
class Plan:
    """What is left to do, who does what, and which lab each lane has (`labs`: lane -> shape). A lane whose lab cannot be made is `broken`:
    it does only what no other lane can do, so that it does not fail all the rest."""

    lanes: Sequence[Lane]
    left: list[Unit]
    labs: dict[str, str] = field(default_factory=dict)
    running: dict[str, Unit] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        able = {shape for lane in self.lanes for shape in lane.shapes}
        for unit in self.left:
            if unit.shape not in able:
                raise LanesError(f"{unit.tests[0]} needs a lane of the shape {unit.shape}, and --lanes has none")

    def waits(self, name: str) -> bool:
        """Whether this lane is not to begin yet."""
        lane = self._lane(name)
        others = {unit.shape for unit in (*self.left, *self.running.values())} - {*lane.shapes}
        return bool(lane.after) and name not in self.running and (lane.after not in self.ended or bool(others))

    def _lane(self, name: str) -> Lane:
        return next(lane for lane in self.lanes if lane.name == name)

    def next(self, name: str) -> Unit | None:
        """What this lane, which has nothing in hand, does now. None: it is not needed any more, and will not be asked again."""
        lane = self._lane(name)
        self.running.pop(name, None)
        self.ended.discard(name)
        for shape in lane.shapes:
            fitting = [unit for unit in self.left if unit.shape == shape]
            if fitting and self._worth(name, shape, fitting):
                chosen = max(fitting, key=lambda unit: unit.seconds)  # of equals the first
                self.left.remove(chosen)
                self.running[name] = chosen
                self.labs[name] = shape
                return chosen
        self.ended.add(name)
        return None

    def _worth(self, name: str, shape: str, fitting: list[Unit]) -> bool:
        able = self._able(shape)
        others = [other for other in able if other != name]
        if name in self.broken:
            return not [other for other in others if other not in self.broken]
        if shape in (NONE, self.labs.get(name)):
            return True
        if not any(self.labs.get(other) == shape for other in others if other not in self.broken):
            return True
        return sum(unit.seconds for unit in fitting) / len(able) > MAKING

    def _able(self, shape: str) -> list[str]:
        """The lanes that may still do such work."""
        return [lane.name for lane in self.lanes if shape in lane.shapes and lane.name not in self.ended]

    def lost(self, name: str, rest: Sequence[str]) -> None:
        """The lane's worker is gone, with its lab in whatever state: the rest of its unit is to be done again, by anybody."""
        unit = self.running.pop(name, None)
        self.labs.pop(name, None)
        if unit and rest:
            self.left.insert(0, Unit(unit.module, unit.shape, list(rest), unit.seconds * len(rest) / len(unit.tests)))

    def to_go(self, name: str) -> int:
        """How many units are left that this lane may do."""
        return sum(unit.shape in self._lane(name).shapes for unit in self.left)
