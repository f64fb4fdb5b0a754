"""What each test of a module uses of it."""

from __future__ import annotations

import ast

from tests.lanes.parts import Part, parts

MODULE = '''"""Words."""

import pytest
from roles import one, two
from roles.three import three as third

pytestmark = [pytest.mark.lab]
FOLDER = "there"
A, B = 1, 2


@pytest.fixture(autouse=True)
def always(lab):
    one()


@pytest.fixture
def planted(lab):
    return helper()


def helper():
    return FOLDER, third


def test_plain():
    assert A


@pytest.mark.wide
def test_planted(planted):
    pass


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.slow)])
def test_named(x):
    two()


class TestAll:
    def test_it(self, planted):
        test_plain()
'''


def found(text: str = MODULE) -> dict[str, Part]:
    return {part.name: part for part in parts(ast.parse(text))}


def uses(part: Part) -> set[str]:
    """The first words of what a test uses."""
    return {ast.unparse(statement).splitlines()[-1 if isinstance(statement, ast.FunctionDef) else 0] for statement in part.module.body}


EVERY = {"import pytest", "pytestmark = [pytest.mark.lab]", "    one()", "from roles import one", "'Words.'"}
PLANTED = {"    return helper()", "    return (FOLDER, third)", "FOLDER = 'there'", "from roles.three import three as third"}


def test_a_test_uses_what_it_names_and_what_that_names() -> None:
    tests = found()
    assert list(tests) == ["test_plain", "test_planted", "test_named", "TestAll"]
    assert uses(tests["test_plain"]) == EVERY | {"    assert A", "A, B = (1, 2)"}
    assert uses(tests["test_planted"]) == EVERY | PLANTED | {"    pass"}
    assert uses(tests["test_named"]) == EVERY | PLANTED | {"    two()", "from roles import two"}
    assert uses(tests["TestAll"]) == EVERY | PLANTED | {"class TestAll:"}, "a test that is named is no part of another"


def test_marks() -> None:
    assert {name: set(part.marks) for name, part in found().items()} == {
        "test_plain": {"lab"},
        "test_planted": {"lab", "wide"},
        "test_named": {"lab", "usefixtures", "parametrize"},
        "TestAll": {"lab"},
    }


def test_a_test_is_the_same_wherever_it_stands() -> None:
    before, after = found(), found("\n\n" + MODULE.replace("return FOLDER, third", "return third"))
    assert {name for name in before if before[name].text != after[name].text} == {"test_planted", "test_named", "TestAll"}
