"""What each test of a module uses of that module: which of its definitions and of its imports. Pure: reads nothing, imports nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A test: its name, what it uses as a module of its own, and the names of its marks (`pytest.mark.NAME`, of the module too)."""

    name: str
    module: ast.Module
    marks: frozenset[str]

    @property
    def text(self) -> frozenset[str]:
        """The statements without their places: two parts with the same text are the same test."""
        return frozenset(ast.dump(statement) for statement in self.module.body)


def parts(tree: ast.Module) -> list[Part]:
    """The tests of a module, functions and classes. A test uses what its body, its parameters (fixtures) and its strings (usefixtures)
    name, and what those name in turn; and what is used by every test: fixtures with autouse, and statements that define nothing."""
    named: dict[str, list[ast.stmt]] = {}
    always: list[ast.stmt] = []
    for statement in _single(tree):
        names = list(_defined(statement))
        for name in names:
            named.setdefault(name, []).append(statement)
        if not names or "pytestmark" in names or _autouse(statement):
            always.append(statement)
    tests = [name for name, found in named.items() if any(_is_test(statement) for statement in found)]
    return [_part(name, named, always) for name in tests]


def _part(test: str, named: dict[str, list[ast.stmt]], always: list[ast.stmt]) -> Part:
    used = [*named[test], *always]
    seen = {id(statement) for statement in used}
    for statement in used:  # grows
        for name in _names(statement):
            for further in named.get(name, ()):
                if id(further) not in seen and not _is_test(further):
                    seen.add(id(further))
                    used.append(further)
    marks = {mark for statement in [*named[test], *named.get("pytestmark", ())] for mark in _marks(statement)}
    return Part(test, ast.Module(used, []), frozenset(marks))


def _single(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements of a module; an import of several names is one for each."""
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            yield from (ast.Import([alias]) for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            yield from (ast.ImportFrom(statement.module, [alias], statement.level) for alias in statement.names)
        else:
            yield statement


def _defined(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name).partition(".")[0] for alias in statement.names)
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))


def _names(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _is_test(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.ClassDef):
        return statement.name.startswith("Test")
    return isinstance(statement, ast.FunctionDef) and statement.name.startswith("test_")


def _autouse(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.FunctionDef):
        return False
    words = [word for decorator in statement.decorator_list for word in ast.walk(decorator) if isinstance(word, ast.keyword)]
    return any(word.arg == "autouse" for word in words)


def _marks(statement: ast.stmt) -> Iterator[str]:
    """Those of the whole test: a mark of one of its parameters (`pytest.param(..., marks=...)`) is not."""
    roots: list[ast.AST] = list(getattr(statement, "decorator_list", [])) or [getattr(statement, "value", statement)]
    for root in roots:
        inner = {id(node) for word in ast.walk(root) if isinstance(word, ast.keyword) for node in ast.walk(word)}
        for node in ast.walk(root):
            if (
                isinstance(node, ast.Attribute)
                and id(node) not in inner
                and isinstance(node.value, ast.Attribute)
                and node.value.attr == "mark"
            ):
                yield node.attr
