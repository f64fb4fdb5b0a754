"""Which tests a change can reach."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.lanes.changed import ROOT, Choice, Reached, Tree, choose, lanes_for, reached, seconds, told
from tests.lanes.durations import Durations

FILES = {
    "config.py": "",
    "requirements.txt": "",
    "README.md": "see docs/one.md",
    "deploys/gates.py": "from roles.gates import gates",
    "deploys/status.py": "from roles.status import status",
    "roles/__init__.py": "",
    "roles/gates/__init__.py": "from roles.gates.plan import plan",
    "roles/gates/plan.py": "from . import model\nTEMPLATE = 'change.sh.j2'",
    "roles/gates/model.py": "from importlib import resources\nTEXT = resources.files('roles.gates').joinpath('gates.json')",
    "roles/gates/gates.json": "{}",
    "roles/status/__init__.py": "import roles.engine.editing.flags",
    "roles/engine/editing/__init__.py": "",
    "roles/engine/editing/flags.py": "",
    "templates/change.sh.j2": '{% include "lock.sh.j2" %}',
    "templates/lock.sh.j2": "",
    "inventories/lab.py": "",
    "inventories/group_data/all.py": "",
    "docs/runbooks/one.md": "$ pyinfra inventories/lab.py deploys/status.py",
    "docs/two.md": "",
    "tests/__init__.py": "",
    "tests/conftest.py": "from tests.lab import Lab\npytest_plugins = ['tests.lanes.plugin']",
    "tests/lab/__init__.py": "",
    "tests/lanes/__init__.py": "",
    "tests/lanes/plugin.py": "",
    "tests/unit/test_pure.py": "from roles.gates import plan",
    "tests/integration/__init__.py": "",
    "tests/integration/operator.py": "def pyinfra(name): return f'deploys/{name}.py'\ndef held(): return ['-m', 'tests.integration.held']",
    "tests/integration/held.py": "",
    "tests/integration/plant.sh": "",
    "tests/integration/test_gates.py": """
from pathlib import Path

import pytest

from tests.integration.operator import pyinfra

pytestmark = pytest.mark.lab


@pytest.fixture
def planted():
    return Path(__file__).with_name("plant.sh")


def test_on():
    pyinfra("gates")


def test_planted(planted):
    assert planted


@pytest.mark.slow
def test_slow(planted):
    pyinfra("gates")
""",
    "tests/integration/test_books.py": """
INVENTORY = "inventories/lab.py"
FOLDER = "docs/runbooks"
pods = {"gates": 1}["gates"]


@pytest.fixture(autouse=True)
def forgotten(lab):
    lab.run(INVENTORY)


@pytest.mark.wide
def test_one():
    open_book(FOLDER, "one")


@pytest.mark.parametrize("case", [pytest.param(1, marks=pytest.mark.older)])
def test_none(case):
    pass
""",
    "tests/integration/test_alone.py": "def test_it():\n    pass",
}
ON, PLANTED, ONE, NO, ALONE = (
    f"tests/integration/test_{name}"
    for name in ("gates.py::test_on", "gates.py::test_planted", "books.py::test_one", "books.py::test_none", "alone.py::test_it")
)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return Tree(tmp_path, FILES)


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("tests/integration/test_gates.py", [(ON, 0), (PLANTED, 0)]),
        ("deploys/gates.py", [(ON, 1)]),
        ("roles/gates/__init__.py", [(ON, 2)]),
        ("roles/gates/model.py", [(ON, 4)]),
        ("roles/gates/gates.json", [(ON, 5)]),
        ("templates/change.sh.j2", [(ON, 4)]),
        ("templates/lock.sh.j2", [(ON, 5)]),
        ("tests/integration/operator.py", [(ON, 1)]),
        ("tests/integration/held.py", [(ON, 2)]),
        ("tests/integration/plant.sh", [(PLANTED, 1)]),
        ("docs/runbooks/one.md", [(ONE, 1)]),
        ("deploys/status.py", [(ONE, 2)]),
        ("roles/engine/editing/flags.py", [(ONE, 4)]),
        ("inventories/group_data/all.py", [(NO, 2), (ONE, 2)]),
        ("roles/__init__.py", [(ONE, 3), (ON, 2)]),
        ("config.py", [(ONE, 3), (ON, 2)]),
        ("tests/conftest.py", [(ALONE, 1), (NO, 1), (ONE, 1), (ON, 1), (PLANTED, 1)]),
        ("tests/lab/__init__.py", [(ALONE, 2), (NO, 2), (ONE, 2), (ON, 2), (PLANTED, 2)]),
        ("requirements.txt", [(ALONE, 1), (NO, 1), (ONE, 1), (ON, 1), (PLANTED, 1)]),
        ("docs/two.md", []),
        ("README.md", []),
        ("tests/unit/test_pure.py", []),
        ("tests/lanes/plugin.py", []),
        ("gone.py", []),
    ],
)
def test_what_a_change_reaches(tree: Tree, changed: str, tests: list[tuple[str, int]]) -> None:
    assert sorted((found.test, found.distance) for found in tree.reached({changed})) == sorted(tests)


def test_the_shape_of_lab_that_a_test_needs(tree: Tree) -> None:
    shapes = {found.test: found.shape for found in tree.reached({"requirements.txt"})}
    assert shapes == {ON: "small", PLANTED: "small", ONE: "wide", NO: "none", ALONE: "none"}


def test_a_file_that_was_removed_reaches_those_that_name_it(tree: Tree) -> None:
    (tree.root / "templates/lock.sh.j2").unlink()
    (tree.root / "roles/gates/model.py").unlink()
    for removed in ("templates/lock.sh.j2", "roles/gates/model.py"):
        assert [found.test for found in tree.reached({removed})] == [ON]


def test_nothing_that_nodes_run_is_out_of_reach() -> None:
    """In this project: each deploy, template and runbook has a test that a change of it runs."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    tree = Tree(ROOT, listed)
    modules = [file for file in listed if file.startswith("tests/integration/test_")]
    within = {file for module in modules for part in tree.parts(module) for file in tree.steps(module, part)}
    wanted = {file for file in listed if file.startswith(("deploys/", "templates/", "docs/runbooks/"))}
    assert wanted and wanted - within == set()
    resized = {found.module for found in tree.reached({"deploys/resize.py"})}
    assert "tests/integration/test_pod_resize.py" in resized
    assert "tests/integration/test_api.py" not in resized, "and not everything is reached by everything"
    assert len(tree.reached({"docs/runbooks/gate-on.md"})) == 1


def test_what_is_committed_and_what_is_not(tree: Tree) -> None:
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@example.net", *words], cwd=tree.root, check=True, capture_output=True
        )

    def names() -> list[str]:
        return [found.test for found in reached(tree.root, "main")]

    git("init", "-b", "main")
    git("add", "-A")
    git("commit", "-m", "one")
    git("checkout", "-b", "mine")
    assert names() == []
    (tree.root / "deploys/status.py").write_text("")
    git("commit", "-am", "two")
    assert names() == [ONE]
    (tree.root / "tests/integration/plant.sh").write_text("more")
    assert names() == [ONE, PLANTED]
    (tree.root / "tests/integration/test_new.py").write_text("def test_it():\n    pass")
    assert names() == [ONE, PLANTED, "tests/integration/test_new.py::test_it"]
    # Of a module that was changed those tests that differ, or use what does.
    gates = tree.root / "tests/integration/test_gates.py"
    gates.write_text(FILES["tests/integration/test_gates.py"].replace('pyinfra("gates")', 'assert pyinfra("gates")'))
    (tree.root / "tests/integration/plant.sh").write_text("")
    assert names() == [ONE, ON, "tests/integration/test_new.py::test_it"]
    gates.write_text(FILES["tests/integration/test_gates.py"].replace("return Path", "return 1 or Path"))
    assert names() == [ONE, PLANTED, "tests/integration/test_new.py::test_it"]
    # What others did since does not count.
    git("checkout", "main", "-f")
    (tree.root / "requirements.txt").write_text("more")
    git("commit", "-am", "three")
    git("checkout", "mine")
    assert ALONE not in names()
    with pytest.raises(SystemExit, match="there is no commit nowhere to compare with; name one"):
        reached(tree.root, "nowhere")


def a(test: str, distance: int, shape: str = "small") -> Reached:
    return Reached(f"tests/integration/{test}", distance, shape)


def test_the_nearest_and_shortest_tests_are_run_that_fit() -> None:
    near, short, long, other = a("test_a.py::near", 1), a("test_a.py::short", 3), a("test_b.py::long", 3), a("test_b.py::other", 4)
    found = [other, long, short, near]
    took = {near.test: 200.0, short.test: 50.0, long.test: 100.0, other.test: 30.0}
    assert choose(found, ["small", "none"], 30, took) == Choice([near, short, long, other], [], [])
    # 8 minutes less a minute for the beginning are 420 s; a module more costs 30 s.
    assert choose(found, ["small", "none"], 8, took) == Choice([near, short, long], [other], [])
    assert choose(found, ["small", "none"], 6, took) == Choice([near, short], [long, other], [])
    assert choose([near], ["small"], 8, {}) == Choice([], [near], []), "one that was never run may be long"


def test_a_module_is_for_one_lane_and_more_lanes_take_more_modules() -> None:
    tests = [a("test_a.py::one", 1), a("test_a.py::two", 1), a("test_b.py::one", 1)]
    took = {test.test: 300.0 for test in tests}
    assert choose(tests, ["small", "small"], 8, took) == Choice([tests[0], tests[2]], [tests[1]], [])


def test_a_test_whose_shape_of_lab_is_not_up_is_named() -> None:
    wide = a("test_a.py::wide", 1, "wide")
    choice = choose([wide], ["small", "none"], 8, {wide.test: 10.0})
    assert choice == Choice([], [], [wide])
    assert told(choice, {wide.test: 10.0}) == [
        "left out, no lab of the shape is up: 1 tests, about 10 s",
        "  tests/integration/test_a.py: wide",
    ]


def test_what_tests_take() -> None:
    none = a("test_a.py::quick", 1, "none")
    new = a("test_new.py::quick", 1, "none")
    durations = Durations({"tests/integration/test_a.py::x[1]": 2.0, "tests/integration/test_a.py::x[2]": 3.0}, {none.module: 0.4})
    assert seconds(durations, [none, new]) == {"tests/integration/test_a.py::x": 5.0, none.test: 0}


def test_the_lanes_are_those_of_the_labs_that_are_up() -> None:
    small, none = a("test_a.py::x", 1), a("test_a.py::y", 1, "none")
    assert lanes_for([small], {"lab": "small", "w": "wide"}) == {"lab": "small", "w": "wide", "u": "none", "v": "none"}
    assert lanes_for([small], {"w": "wide"}) == {"lab": "small", "w": "wide", "u": "none", "v": "none"}, "the plain lab is made"
    assert lanes_for([small], {"lab": "wide"}) == {"lab": "wide", "u": "none", "v": "none"}
    assert lanes_for([none], {"lab": "small"}) == {"u": "none", "v": "none"}
