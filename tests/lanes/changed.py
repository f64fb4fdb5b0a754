"""python -m tests.lanes.changed [--run] [--minutes N] [BASE]: the tests that a change since BASE (origin/main) can reach: the unit
tests, and tests of tests/integration. What is not committed counts. With --run they are run, in lanes of the labs that are up, as many
as the minutes allow: the nearest to the change first, and of these the shortest. Those that are left out are named.

A test is reached when it was changed itself, or when a file that it needs was. It needs what the parts of its module that it uses need
(tests/lanes/parts.py); how near it is, is the number of files on the way. A file needs

- the project's modules that it imports, and the __init__.py of each package on the way; modules that it names for `python -m`;
- a test or one of its helpers: each deploy that it names, as "audit" or in a path, each runbook that it names, as "gate-on", and the
  conftest.py of the folders above it;
- a deploy: config.py, which pyinfra reads with each of them;
- the files and folders that a string of it names, from the project's root or from its own folder (docs/one.md, plant.sh); thereby a
  role needs the templates that it renders, as templates/NAME or NAME.j2. The folder of runbooks counts as none: see above;
- a page of docs: the deploys that it names (runbooks are run letter for letter); an inventory: inventories/group_data.

requirements.txt is needed by all. What is loaded in another way (a role by pyinfra itself, say) must be named in one of these.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from tests.lab import Lab, LabError
from tests.lanes.durations import UNKNOWN, Durations
from tests.lanes.parts import Part, parts
from tests.lanes.schedule import NONE, PLAIN, Lane
from tests.lanes.shapes import BY_MARKER
from tests.lanes.worker import KEEP

ROOT = Path(__file__).resolve().parents[2]
UNIT = "tests/unit"
INTEGRATION = "tests/integration"
RUNBOOKS = "docs/runbooks"
DURATIONS = "tests/durations.json"
NEEDED_BY_ALL = {"requirements.txt"}
# Labs that are looked for: a developer's own, and those of `make test`.
LABS = (PLAIN, "a", "b", "c", "w")
# Seconds before the first test, and until the lab of a lane is back at its beginning.
BEGINNING, RESET = 60.0, 30.0
_DEPLOY = re.compile(r"\bdeploys/(\w+)\.py")


@dataclass(frozen=True)
class Reached:
    """A test of tests/integration that a change reaches: its node id without parameters, how many files lie between (0: it was changed
    itself), and the shape of lab that it needs."""

    test: str
    distance: int
    shape: str

    @property
    def module(self) -> str:
        return self.test.partition("::")[0]


class Tree:
    """The files of a project, and which of them each one needs. `files` are paths from the root, with slashes; `before` the texts that
    changed test modules had (path -> text): of those only the tests that differ count as changed."""

    def __init__(self, root: Path, files: Iterable[str], before: Mapping[str, str] | None = None) -> None:
        self.root, self.files, self.before = root, set(files), before or {}
        self._needs: dict[str, set[str]] = {}
        self._parts: dict[str, list[Part]] = {}
        self._steps: dict[tuple[str, str], dict[str, int]] = {}

    def reached(self, changed: set[str]) -> list[Reached]:
        """The integration tests that a change of these files can reach, slow ones left out, in the order of their modules."""
        modules = sorted(file for file in self.files if re.fullmatch(rf"{INTEGRATION}/(?:\w+/)*test_\w+\.py", file))
        found = []
        for module in modules:
            for part in self.parts(module):
                distance = self._distance(module, part, changed)
                if distance is not None and "slow" not in part.marks:
                    shape = next((shape for mark, shape in BY_MARKER.items() if mark in part.marks), NONE)
                    found.append(Reached(f"{module}::{part.name}", distance, shape))
        return found

    def parts(self, module: str) -> list[Part]:
        if module not in self._parts:
            path = self.root / module
            self._parts[module] = parts(ast.parse(path.read_text(encoding="utf-8"))) if path.is_file() else []
        return self._parts[module]

    def _distance(self, module: str, part: Part, changed: set[str]) -> int | None:
        if NEEDED_BY_ALL & changed:
            return 1
        if module in changed and self._differs(module, part):
            return 0
        steps = self.steps(module, part)
        return min((steps[file] for file in changed & set(steps)), default=None)

    def _differs(self, module: str, part: Part) -> bool:
        old = {one.name: one for one in parts(ast.parse(self.before.get(module, "")))}
        return part.name not in old or old[part.name].text != part.text

    def steps(self, module: str, part: Part) -> dict[str, int]:
        """All files that a test needs, but its own module, with how many steps away they are."""
        key = (module, part.name)
        if key not in self._steps:
            self._steps[key] = self._walked(module, part)
        return self._steps[key]

    def _walked(self, module: str, part: Part) -> dict[str, int]:
        found: dict[str, int] = {}
        todo, distance = set(self._python(module, part.module)) & self.files, 1
        while todo:
            found.update(dict.fromkeys(todo, distance))
            todo = set().union(*(self.needs(file) for file in todo)) - set(found) - {module}
            distance += 1
        return found

    def needs(self, file: str) -> set[str]:
        if file not in self._needs:
            self._needs[file] = set(self._look(file)) & self.files
        return self._needs[file]

    def _look(self, file: str) -> Iterator[str]:
        path = self.root / file
        if not path.is_file():  # it was removed
            return
        if file.endswith(".py"):
            yield from self._python(file, ast.parse(path.read_text(encoding="utf-8")))
        elif file.endswith(".md"):
            yield from self._deploys(path.read_text(encoding="utf-8"))
        elif file.startswith("templates/"):
            yield from self._named(file, re.findall(r"[\w./-]+\.j2", path.read_text(encoding="utf-8")))

    def _python(self, file: str, tree: ast.Module) -> Iterator[str]:
        for name in _imported(tree, PurePosixPath(file).parent):
            yield from self._module(name)
        strings = list(_strings(tree))
        yield from self._named(file, strings)
        for text in strings:
            if re.fullmatch(r"(?:tests|roles)(?:\.\w+)+", text):
                yield from self._module(text)
        if file.startswith("tests/"):
            yield from (f"{above}/conftest.py" for above in PurePosixPath(file).parents)
        if file.startswith(f"{INTEGRATION}/"):
            yield from (f"deploys/{text}.py" for text in strings)
            yield from (f"{RUNBOOKS}/{text}.md" for text in strings)
            for text in strings:
                yield from self._deploys(text)
        if file.startswith("deploys/"):
            yield "config.py"
        if re.fullmatch(r"inventories/\w+\.py", file):
            yield from self._below("inventories/group_data")

    def _module(self, name: str) -> Iterator[str]:
        """The files that Python reads to import a module: packages on the way too."""
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            path = "/".join(parts[:length])
            yield f"{path}.py"
            yield f"{path}/__init__.py"

    def _named(self, file: str, strings: Iterable[str]) -> Iterator[str]:
        folder = PurePosixPath(file).parent
        for text in strings:
            if not re.fullmatch(r"[\w.-]+(?:/[\w.-]+)*/?", text):
                continue
            for path in (text.rstrip("/"), f"{folder}/{text.rstrip('/')}", f"templates/{text}"):
                yield path
                if "/" in text or path not in self.top:
                    yield from self._below(path)

    @cached_property
    def top(self) -> set[str]:
        """Folders of the root. A string such as "roles" is a word: it takes a path to name a folder."""
        return {file.partition("/")[0] for file in self.files if "/" in file}

    def _below(self, folder: str) -> Iterator[str]:
        if folder in self._folders and folder != RUNBOOKS:
            yield from (file for file in self.files if file.startswith(f"{folder}/"))

    @cached_property
    def _folders(self) -> set[str]:
        return {str(above) for file in self.files for above in PurePosixPath(file).parents}

    @staticmethod
    def _deploys(text: str) -> Iterator[str]:
        yield from (f"deploys/{name}.py" for name in _DEPLOY.findall(text))


def _imported(tree: ast.Module, folder: PurePosixPath) -> Iterator[str]:
    """The names of modules that are imported, and of what is imported from them: that may be a module, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = folder.parts[: len(folder.parts) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _strings(tree: ast.Module) -> Iterator[str]:
    """The strings that may name a file, a module or a deploy: no key of a mapping (a pod has a "status"), no part of an f-string.
    Nor pytest's plugins: they have tests of their own, and take no part in what others show."""
    out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            out.add(id(node.slice))
        elif isinstance(node, ast.Dict):
            out.update(id(key) for key in node.keys)
        elif isinstance(node, ast.JoinedStr):
            out.update(id(part) for part in node.values)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
            out.update(id(argument) for argument in node.args)
        elif isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "pytest_plugins" for target in node.targets):
            out.update(id(inner) for inner in ast.walk(node.value))
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in out]
    yield from (node.value for node in constants if isinstance(node.value, str))


def _git(root: Path, *words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"git {' '.join(words)}: {done.stderr.strip()}")
    return [word for word in done.stdout.split("\0" if "-z" in words else "\n") if word]


def _fork(root: Path, base: str) -> str:
    """The commit at which this branch left `base`."""
    if subprocess.run(["git", "rev-parse", "--verify", "-q", f"{base}^{{commit}}"], cwd=root, capture_output=True, check=False).returncode:
        raise SystemExit(f"there is no commit {base} to compare with; name one: make test-changed BASE=main")
    (fork,) = _git(root, "merge-base", base, "HEAD")
    return fork


def reached(root: Path, base: str) -> list[Reached]:
    """What the files reach that differ from where this branch left `base`, committed or not."""
    fork = _fork(root, base)
    changed = {
        *_git(root, "diff", "--name-only", "--no-renames", "-z", fork),
        *_git(root, "ls-files", "--others", "--exclude-standard", "-z"),
    }
    before = set(_git(root, "ls-tree", "-r", "--name-only", "-z", fork, INTEGRATION)) & changed
    texts = {file: "\n".join(_git(root, "show", f"{fork}:{file}")) for file in before if file.endswith(".py")}
    return Tree(root, {*_git(root, "ls-files", "-z"), *changed}, texts).reached(changed)


@dataclass(frozen=True)
class Choice:
    """What is run of the tests that are reached, what there is no time for, and what there is no lab for."""

    run: list[Reached]
    long: list[Reached]
    without_lab: list[Reached]


def choose(found: Sequence[Reached], lanes: Sequence[str], minutes: float, took: Mapping[str, float]) -> Choice:
    """The tests that fit. `lanes` are the shapes of the lanes, `took` what tests take in seconds. One lane takes a module's tests of a
    shape, so that none has more than the minutes, less what a run begins with; and each module costs a reset of the lab."""
    room = minutes * 60 - BEGINNING
    left = {shape: room * lanes.count(shape) for shape in set(lanes)}
    spent: dict[tuple[str, str], float] = {}
    choice = Choice([], [], [test for test in found if test.shape not in left])
    known = [test for test in found if test.shape in left]
    for test in sorted(known, key=lambda test: (test.distance, took.get(test.test, UNKNOWN))):
        piece = (test.module, test.shape)
        cost = took.get(test.test, UNKNOWN) + (0 if piece in spent or test.shape == NONE else RESET)
        if cost > left[test.shape] or spent.get(piece, 0) + cost > room:
            choice.long.append(test)
            continue
        left[test.shape] -= cost
        spent[piece] = spent.get(piece, 0) + cost
        choice.run.append(test)
    return choice


def seconds(durations: Durations, tests: Iterable[Reached]) -> dict[str, float]:
    """What each test takes with all its parameters; one that was never run is missing. Of those without a lab only what takes a second
    is recorded: the others take none."""
    found: dict[str, float] = {}
    for test, took in durations.tests.items():
        name = test.partition("[")[0]
        found[name] = found.get(name, 0) + took
    for one in tests:
        if one.shape == NONE and one.module in durations.modules:
            found.setdefault(one.test, 0)
    return found


def labs_up() -> dict[str, str]:
    """Lane -> shape, for the labs that are there."""
    found = {}
    for lane in LABS:
        shape = Lab(Lane(lane, ()).lab).shape_name  # type: ignore[call-arg, attr-defined]
        if shape:
            found[lane] = str(shape)
    return found


def lanes_for(found: Sequence[Reached], up: Mapping[str, str]) -> dict[str, str]:
    """Lane -> shape. The plain lab is made where there is none of its shape: it takes a minute."""
    without = {"u": NONE, "v": NONE}
    if all(test.shape == NONE for test in found):
        return without
    return {**(up if PLAIN in up or "small" in up.values() else {PLAIN: "small", **up}), **without}


def told(choice: Choice, took: Mapping[str, float]) -> list[str]:
    """Lines that say what is run and what is not."""
    lines = []
    for title, tests in (
        ("run", choice.run),
        ("left out, too long (MINUTES=45 allows more; `make test` runs all)", choice.long),
        ("left out, no lab of the shape is up", choice.without_lab),
    ):
        if tests:
            lines.append(f"{title}: {len(tests)} tests, about {sum(took.get(test.test, UNKNOWN) for test in tests):.0f} s")
        for module in dict.fromkeys(test.module for test in tests):
            own = [test for test in tests if test.module == module]
            lines.append(f"  {module}: {', '.join(test.test.partition('::')[2] for test in own)}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lanes.changed", description="The tests that a change can reach.")
    parser.add_argument("base", nargs="?", default="origin/main", help="what to compare with (origin/main)")
    parser.add_argument("--run", action="store_true", help="run them, in lanes of the labs that are up")
    parser.add_argument("--minutes", type=float, default=8, help="what the run may take (8)")
    given = parser.parse_args()
    found = reached(ROOT, given.base)
    try:
        lanes = lanes_for(found, labs_up())
    except LabError as error:
        raise SystemExit(str(error)) from error
    took = seconds(Durations.read(ROOT / DURATIONS), found)
    choice = choose(found, list(lanes.values()), given.minutes, took)
    print("\n".join([f"unit tests: {UNIT}", *told(choice, took)]), flush=True)
    if not given.run:
        return 0
    shown = ",".join(f"{lane}:{shape}" for lane, shape in lanes.items())
    words = [sys.executable, "-m", "pytest", UNIT, *(test.test for test in choice.run), f"--lanes={shown}", "-m", "not slow"]
    # They were up before.
    os.environ[KEEP] = "1"
    os.execv(sys.executable, words)


if __name__ == "__main__":
    sys.exit(main())
