"""How long tests take: tests/durations.json, which a run rewrites on request only. Pure but for reading and writing that file.

{"tests": {node id: seconds}, "modules": {module: seconds of those of its tests that need no lab}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.lanes.schedule import NONE

# A unit that was never run counts as long, so that it starts early.
UNKNOWN = 600.0
# A test without a lab is named from here on, seconds.
WORTH_NAMING = 1.0


@dataclass
class Durations:
    tests: dict[str, float] = field(default_factory=dict)
    modules: dict[str, float] = field(default_factory=dict)

    def unit(self, module: str, shape: str, tests: Sequence[str]) -> float:
        """What these tests of a module are likely to take, in seconds; a test that was never run counts as the mean of the others."""
        if shape == NONE:
            return self.modules.get(module, UNKNOWN)
        known = [self.tests[test] for test in tests if test in self.tests]
        return sum(known) / len(known) * len(tests) if known else UNKNOWN

    def record(self, took: Mapping[str, float], shapes: Mapping[str, str], whole: set[str]) -> None:
        """Take over what tests took that passed (node id -> seconds). `whole` are the modules of which each test without a lab
        was run and passed: for others their total would be wrong."""
        for test, seconds in took.items():
            if shapes[test] != NONE or seconds >= WORTH_NAMING:
                self.tests[test] = seconds
            else:
                self.tests.pop(test, None)
        for module in whole:
            self.modules[module] = sum(seconds for test, seconds in took.items() if shapes[test] == NONE and _module(test) == module)

    def forget(self, root: Path) -> None:
        """Drop what is of modules that are no longer there."""
        self.tests = {test: seconds for test, seconds in self.tests.items() if (root / _module(test)).exists()}
        self.modules = {module: seconds for module, seconds in self.modules.items() if (root / module).exists()}

    @classmethod
    def read(cls, path: Path) -> Durations:
        try:
            found = json.loads(path.read_text())
        except FileNotFoundError:
            return cls()
        return cls(dict(found["tests"]), dict(found["modules"]))

    def write(self, path: Path) -> None:
        rounded = {
            name: {key: round(seconds, 1) for key, seconds in sorted(values.items())}
            for name, values in (("modules", self.modules), ("tests", self.tests))
        }
        path.write_text(json.dumps(rounded, indent=1, ensure_ascii=False) + "\n")


def _module(test: str) -> str:
    return test.partition("::")[0]
