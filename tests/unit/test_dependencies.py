"""What pyproject.toml lists is imported, what is imported is listed, and requirements.txt was made from it."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from tests.unit.source import imports

ROOT = Path(__file__).resolve().parents[2]
OURS = {"config", "deploys", "inventories", "roles", "tests"}
#: What is run or loaded by its name: the file that does it, and the words there.
BY_NAME = {
    "ruff": ("Makefile", "bin/ruff "),
    "mypy": ("Makefile", "bin/mypy"),
    "import-linter": ("Makefile", "bin/lint-imports "),
    "setuptools": ("pyproject.toml", "setuptools.build_meta"),
    "pytest-xdist": ("tests/lanes/plugin.py", "pytest-xdist"),
}


def _name(text: str) -> str:
    """A distribution's name as PEP 503 normalises it, without version and extras."""
    found = re.match(r"[A-Za-z0-9._-]+", text)
    assert found, text
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def _listed() -> tuple[set[str], set[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {_name(entry) for entry in project["dependencies"]}, {_name(entry) for entry in project["optional-dependencies"]["test"]}


def _modules(paths: Iterable[Path]) -> Iterator[str]:
    """Each top level module at least once. A file is parsed if some line of it, perhaps of a string, would import one that is not known yet."""
    known = {*sys.stdlib_module_names, *OURS}
    for path in paths:
        lines = re.findall(r"^[ \t]*(?:from|import)[ \t]+([^#\n]*)", path.read_text(encoding="utf-8"), re.MULTILINE)
        tops = {re.split(r"\W", word.strip())[0] for line in lines for word in line.partition(" import ")[0].split(",")}
        if tops - {""} <= known:
            continue
        for node in imports(path):
            if isinstance(node, ast.Import):
                found = [name.name for name in node.names]
            else:
                found = [node.module] if node.module and not node.level else []
            known.update(name.partition(".")[0] for name in found)
            yield from found


def _imported(*places: str) -> set[str]:
    """The distributions that the Python files of these folders, or these files, import."""
    files = [path for place in places for path in (sorted((ROOT / place).rglob("*.py")) or [ROOT / place])]
    assert len(files) >= len(places)
    tops = {module.partition(".")[0] for module in _modules(files)} - sys.stdlib_module_names - OURS
    distributions = packages_distributions()
    return {_name(distributions[top][0] if top in distributions else top) for top in tops}


def test_what_daytwo_needs_is_what_it_imports() -> None:
    assert _imported("roles", "deploys", "inventories", "config.py") == _listed()[0]


def test_what_its_tests_need_is_what_they_import_or_run() -> None:
    needed, extra = _listed()
    imported = _imported("tests")
    assert imported - needed <= extra
    for name in extra - imported:
        if name.startswith("types-"):
            assert name.removeprefix("types-") in needed
        else:
            path, words = BY_NAME[name]
            assert words in (ROOT / path).read_text(), f"{name} is neither imported nor run"


def test_the_pinned_versions_were_made_from_these_lists() -> None:
    text = (ROOT / "requirements.txt").read_text()
    blocks = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert {_name(block) for block in blocks if "daytwo (pyproject.toml)" in block} == set.union(*_listed())
    assert all("--hash=sha256:" in block for block in blocks)
