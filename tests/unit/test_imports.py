"""Packages are used through their faces, and nothing imports a deploy. (The layers: import-linter's contract in pyproject.toml.)"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {path.parent.name for path in ROOT.glob("roles/*/__init__.py")}
# So many imports take a name from inside another package. It may only fall.
PAST_A_FACE = 107


def exported(package: str) -> set[str]:
    tree = ast.parse((ROOT / "roles" / package / "__init__.py").read_text())
    found = [node.value for node in ast.walk(tree) if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"]
    return {name for value in found for name in ast.literal_eval(value)}


FACES = {package: exported(package) for package in PACKAGES}


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """Module and name of each import from roles/; of `import roles.x` the name is ""."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


def past_a_face(path: Path) -> list[str]:
    found = []
    for module, name in imports(path):
        root, package, *inside = [*module.split("."), ""]
        if root == "roles" and package in PACKAGES and package != path.parent.name and (inside != [""] or name not in FACES[package]):
            found.append(f"{path.relative_to(ROOT)}: {module}: {name}")
    return found


def test_other_packages_are_used_through_their_faces() -> None:
    found = [one for path in sorted(ROOT.glob("roles/**/*.py")) for one in past_a_face(path)]
    assert len(found) == PAST_A_FACE, "\n".join(["it has to be", str(len(found)), *found])


def test_deploys_use_faces_alone() -> None:
    assert [one for path in sorted(ROOT.glob("deploys/*.py")) for one in past_a_face(path)] == []


def test_no_role_imports_a_deploy() -> None:
    found = [
        path
        for path in ROOT.glob("roles/**/*.py")
        for module, _ in imports(path)
        if module.split(".")[0] in ("deploys", "inventories", "tests")
    ]
    assert found == []
