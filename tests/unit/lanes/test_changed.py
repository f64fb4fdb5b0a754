"""Which tests a change can reach."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.lanes.changed import ROOT, Tree, arguments, chosen

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
    "roles/status/__init__.py": "import roles.formats.flags",
    "roles/formats/__init__.py": "",
    "roles/formats/flags.py": "",
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
    "tests/integration/test_gates.py": "from pathlib import Path\nfrom tests.integration.operator import pyinfra\npyinfra('gates')\nPath(__file__).with_name('plant.sh')",
    "tests/integration/test_books.py": "BOOKS = 'docs/runbooks'\nINVENTORY = 'inventories/lab.py'\npods = {'gates': 1}['gates']",
    "tests/integration/test_alone.py": "",
}
GATES, BOOKS, ALONE = (f"tests/integration/test_{name}.py" for name in ("gates", "books", "alone"))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return Tree(tmp_path, FILES)


@pytest.mark.parametrize(
    ("changed", "reached"),
    [
        (GATES, [GATES]),
        ("deploys/gates.py", [GATES]),
        ("roles/gates/__init__.py", [GATES]),
        ("roles/gates/model.py", [GATES]),
        ("roles/gates/gates.json", [GATES]),
        ("templates/change.sh.j2", [GATES]),
        ("templates/lock.sh.j2", [GATES]),
        ("tests/integration/operator.py", [GATES]),
        ("tests/integration/held.py", [GATES]),
        ("tests/integration/plant.sh", [GATES]),
        ("docs/runbooks/one.md", [BOOKS]),
        ("deploys/status.py", [BOOKS]),
        ("roles/formats/flags.py", [BOOKS]),
        ("roles/formats/__init__.py", [BOOKS]),
        ("inventories/group_data/all.py", [BOOKS]),
        ("roles/__init__.py", [BOOKS, GATES]),
        ("config.py", [BOOKS, GATES]),
        ("tests/conftest.py", [ALONE, BOOKS, GATES]),
        ("tests/lab/__init__.py", [ALONE, BOOKS, GATES]),
        ("requirements.txt", [ALONE, BOOKS, GATES]),
        ("docs/two.md", []),
        ("README.md", []),
        ("tests/unit/test_pure.py", []),
        ("tests/lanes/plugin.py", []),
        ("gone.py", []),
    ],
)
def test_what_a_change_reaches(tree: Tree, changed: str, reached: list[str]) -> None:
    assert tree.reached({changed}) == reached


def test_a_file_that_was_removed_reaches_those_that_name_it(tree: Tree) -> None:
    (tree.root / "templates/lock.sh.j2").unlink()
    (tree.root / "roles/gates/model.py").unlink()
    assert tree.reached({"templates/lock.sh.j2"}) == tree.reached({"roles/gates/model.py"}) == [GATES]


def test_nothing_that_nodes_run_is_out_of_reach() -> None:
    """In this project: each deploy, template and runbook has a module that a change of it runs."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    tree = Tree(ROOT, listed)
    within = set().union(*(tree.closure(file) for file in listed if file.startswith("tests/integration/test_")))
    wanted = {file for file in listed if file.startswith(("deploys/", "templates/", "docs/runbooks/"))}
    assert wanted and wanted - within == set()
    far = "tests/integration/test_api.py"
    assert far not in tree.reached({"deploys/resize.py"}), "and not everything is reached by everything"


def test_what_is_committed_and_what_is_not(tree: Tree) -> None:
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@example.net", *words], cwd=tree.root, check=True, capture_output=True
        )

    git("init", "-b", "main")
    git("add", "-A")
    git("commit", "-m", "one")
    git("checkout", "-b", "mine")
    assert chosen(tree.root, "main") == ["tests/unit"]
    (tree.root / "deploys/status.py").write_text("")
    git("commit", "-am", "two")
    assert chosen(tree.root, "main") == ["tests/unit", BOOKS]
    (tree.root / "tests/integration/plant.sh").write_text("more")
    assert chosen(tree.root, "main") == ["tests/unit", BOOKS, GATES]
    (tree.root / "tests/integration/test_new.py").touch()
    assert chosen(tree.root, "main") == ["tests/unit", BOOKS, GATES, "tests/integration/test_new.py"]
    # What others did since does not count.
    git("checkout", "main", "-f")
    (tree.root / "requirements.txt").write_text("more")
    git("commit", "-am", "three")
    git("checkout", "mine")
    assert ALONE not in chosen(tree.root, "main")
    with pytest.raises(SystemExit, match="there is no commit nowhere to compare with; name one"):
        chosen(tree.root, "nowhere")


def test_the_lanes_are_those_of_the_labs_that_are_up() -> None:
    modules = ["tests/unit", GATES]
    assert arguments(modules, {"lab": "small", "w": "wide"}) == [
        *modules,
        "--lanes=lab:small,w:wide,u:none",
        "-m",
        "not slow and not older",
    ]
    assert arguments(modules, {"w": "wide"})[2] == "--lanes=lab:small,w:wide,u:none", "the plain lab is made"
    assert arguments(modules, {"lab": "wide"})[2:] == [
        "--lanes=lab:wide,u:none",
        "-m",
        "not slow and not older and (wide or older or not lab)",
    ]
    assert arguments(["tests/unit"], {"lab": "small"}) == ["tests/unit", "--lanes=u:none", "-m", "not slow"]
