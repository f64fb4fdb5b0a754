"""Nothing in roles/ imports a deploy, and a deploy imports one face. (Layers and faces of roles/: `lint-imports`, pyproject.toml.)"""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.face_contract import FaceContract, exported
from tests.unit.source import imports

ROOT = Path(__file__).resolve().parents[2]


def imported(path: Path) -> Iterator[str]:
    for node in imports(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif node.module:
            yield node.module


def test_a_deploy_imports_one_role() -> None:
    found = {path.stem: list(imported(path)) for path in sorted((ROOT / "deploys").glob("*.py"))}
    # The first two find roles/ from another folder.
    others = {name: [module for module in modules if module not in ("sys", "pathlib")] for name, modules in found.items()}
    assert [name for name, modules in others.items() if [module.count(".") for module in modules] != [1]] == []


def test_no_role_imports_a_deploy_or_a_test() -> None:
    words = ("deploys", "inventories", "tests")
    named = [path for path in ROOT.glob("roles/**/*.py") if any(word in path.read_text(encoding="utf-8") for word in words)]
    assert named, "a comment here and there names them"
    found = [path for path in named for name in imported(path) if name.split(".")[0] in words]
    assert found == []


def test_no_test_imports_a_module_of_tests() -> None:
    """What they share is in a module that is named for what it is: world.py and its like of a folder, tests/unit/hosts.py."""
    found = []
    for path in (ROOT / "tests").glob("**/*.py"):
        for node in imports(path):
            words = f"{getattr(node, 'module', None) or ''}.{'.'.join(alias.name for alias in node.names)}".split(".")
            found += [f"{path}:{node.lineno} {word}" for word in words if word.startswith("test_")]
    assert found == []


def test_a_face_exports_at_most_25_names() -> None:
    faces = {path.parent.relative_to(ROOT).as_posix().replace("/", ".") for path in ROOT.glob("roles/**/__init__.py")}
    assert {face: names for face in faces if len(names := exported(face)) > 25} == {}, "names that belong together are a module of it"


def test_status_loads_no_large_role() -> None:
    code = "import sys, roles.status; print(*sorted(name for name in sys.modules if name.startswith('roles.') and name.count('.') == 1))"
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["roles.engine", "roles.sleeping", "roles.status"]


_WITHOUT = """
import importlib, pkgutil, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent}:
            raise ImportError(name + " is not there")

sys.meta_path.insert(0, Absent())
for room in {rooms}:
    for found in pkgutil.iter_modules(importlib.import_module(room).__path__, room + "."):
        if not found.name.endswith(".__main__"):
            importlib.import_module(found.name)
"""


def test_the_rooms_that_know_no_machine_load_without_what_only_the_bridge_uses() -> None:
    """As the lint says it of what is written: also of what is imported at run time."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (found,) = (one for one in contracts if "roles.engine.bridge" in one.get("forbidden_modules", ()))
    assert found["allow_indirect_imports"] is False
    absent = {name for name in found["forbidden_modules"] if "." not in name}
    assert absent == {"pyinfra", "pyinfra_cli", "gevent", "paramiko"}

    def loads(*rooms: str) -> subprocess.CompletedProcess[str]:
        code = _WITHOUT.format(absent=absent, rooms=rooms)
        return subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, capture_output=True, text=True, timeout=120)

    done = loads(*found["source_modules"])
    assert (done.returncode, done.stderr) == (0, "")
    assert "ImportError: " in loads("roles.engine.bridge").stderr


def test_an_import_past_a_face_is_found(tmp_path: Path) -> None:
    files = {
        "house/__init__.py": "",
        "house/role.py": "from house.room import open_one, private_one\n",
        "house/room/__init__.py": "from house.room import open_one\n\n__all__ = ['open_one']\n",
        "house/room/open_one.py": "from house.room import private_one\n",
        "house/room/private_one.py": "",
        ".importlinter": f"[importlinter]\nroot_package = house\ncontract_types =\n    face: {FaceContract.__module__}.{FaceContract.__name__}\n"
        "[importlinter:contract:face]\nname = faces\ntype = face\nroot = house\nopen = house\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    done = subprocess.run(
        command, check=False, cwd=tmp_path, env={"PYTHONPATH": f"{tmp_path}:{ROOT}"}, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, [line for line in done.stdout.splitlines() if "->" in line]) == (1, ["house.role -> house.room.private_one"])


_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def test_no_comprehension_gives_a_parameter_another_value() -> None:
    """`:=` in a comprehension is of the function around it: `if (run := ...)` once took the run's name from what came after it."""
    found = []
    for path in sorted((ROOT / "roles").glob("**/*.py")):
        for function in (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)):
            own = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
            named = (one for each in ast.walk(function) if isinstance(each, _COMPREHENSIONS) for one in ast.walk(each))
            found += [f"{path}:{one.lineno}" for one in named if isinstance(one, ast.NamedExpr) and one.target.id in own]
    assert found == []
