"""python -m tests.lanes.changed [--run] [BASE]: the tests that a change since BASE (origin/main) can reach: the unit tests, and
modules of tests/integration. What is not committed counts. With --run they are run, in lanes of the labs that are up.

A module is reached when a file that it needs was changed. A file needs

- the project's modules that it imports, and the __init__.py of each package on the way; modules that it names for `python -m`;
- a test or one of its helpers: each deploy that it names, as "audit" or in a path, and the conftest.py of the folders above it;
- a deploy: config.py, which pyinfra reads with each of them;
- the files and folders that a string of it names, from the project's root or from its own folder (docs/runbooks, plant.sh);
  thereby a role needs the templates that it renders, as templates/NAME or NAME.j2;
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
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path, PurePosixPath

from tests.lab import Lab, LabError
from tests.lanes.schedule import NONE, PLAIN, Lane
from tests.lanes.worker import KEEP

ROOT = Path(__file__).resolve().parents[2]
UNIT = "tests/unit"
INTEGRATION = "tests/integration"
NEEDED_BY_ALL = {"requirements.txt"}
# Labs that are looked for: a developer's own, and those of `make test`.
LABS = (PLAIN, "a", "b", "w")
# pytest's words for the tests that do not need a lab of a shape.
WITHOUT = {"wide": "not wide", "older": "not older", "small": "(wide or older or not lab)"}
_DEPLOY = re.compile(r"\bdeploys/(\w+)\.py")


class Tree:
    """The files of a project, and which of them each one needs. `files` are paths from the root, with slashes."""

    def __init__(self, root: Path, files: Iterable[str]) -> None:
        self.root, self.files = root, set(files)
        self._needs: dict[str, set[str]] = {}

    def reached(self, changed: set[str]) -> list[str]:
        """The modules of integration tests that a change of these files can reach."""
        modules = sorted(file for file in self.files if re.fullmatch(rf"{INTEGRATION}/(?:\w+/)*test_\w+\.py", file))
        return [module for module in modules if NEEDED_BY_ALL & changed or self.closure(module) & changed]

    def closure(self, file: str) -> set[str]:
        """The file, and all that it needs, and what those need."""
        found, todo = {file}, [file]
        while todo:
            for needed in self.needs(todo.pop()) - found:
                found.add(needed)
                todo.append(needed)
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
        if folder in self._folders:
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


def changed_files(root: Path, base: str) -> set[str]:
    """Files that differ from where this branch left `base`, committed or not."""
    if subprocess.run(["git", "rev-parse", "--verify", "-q", f"{base}^{{commit}}"], cwd=root, capture_output=True, check=False).returncode:
        raise SystemExit(f"there is no commit {base} to compare with; name one: make test-changed BASE=main")
    (fork,) = _git(root, "merge-base", base, "HEAD")
    return {*_git(root, "diff", "--name-only", "--no-renames", "-z", fork), *_git(root, "ls-files", "--others", "--exclude-standard", "-z")}


def chosen(root: Path, base: str) -> list[str]:
    changed = changed_files(root, base)
    tree = Tree(root, {*_git(root, "ls-files", "-z"), *changed})
    return [UNIT, *tree.reached(changed)]


def labs_up() -> dict[str, str]:
    """Lane -> shape, for the labs that are there."""
    found = {}
    for lane in LABS:
        shape = Lab(Lane(lane, ()).lab).shape_name  # type: ignore[call-arg, attr-defined]
        if shape:
            found[lane] = str(shape)
    return found


def arguments(modules: list[str], up: dict[str, str]) -> list[str]:
    """What pytest is called with: a lane for each lab, and no test that needs a lab that is not there. The plain lab is made
    where there is none of its shape: it takes a minute."""
    lanes = {}
    if modules != [UNIT]:
        lanes = dict(up) if PLAIN in up or "small" in up.values() else {PLAIN: "small", **up}
    missing = [where for shape, where in WITHOUT.items() if lanes and shape not in lanes.values()]
    words = [f"{lane}:{shape}" for lane, shape in lanes.items()] + [f"u:{NONE}"]
    return [*modules, f"--lanes={','.join(words)}", "-m", " and ".join(["not slow", *missing])]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lanes.changed", description="The tests that a change can reach.")
    parser.add_argument("base", nargs="?", default="origin/main", help="what to compare with (origin/main)")
    parser.add_argument("--run", action="store_true", help="run them, in lanes of the labs that are up")
    given = parser.parse_args()
    modules = chosen(ROOT, given.base)
    print("\n".join(modules), flush=True)
    if not given.run:
        return 0
    try:
        words = [sys.executable, "-m", "pytest", *arguments(modules, labs_up())]
    except LabError as error:
        raise SystemExit(str(error)) from error
    print(f"$ {' '.join(words)}", flush=True)
    # They were up before.
    os.environ[KEEP] = "1"
    os.execv(sys.executable, words)


if __name__ == "__main__":
    sys.exit(main())
