"""A contract for import-linter: other packages import from a package's face only, its `__init__.py`.

A module that a face exports by name (`from roles.engine.editing import flags`) is part of the face.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from importlinter import Contract, ContractCheck, fields, output

# As import-linter is run.
ROOT = Path.cwd()


class FaceContract(Contract):
    """`root`: the package that it is about; `open`: packages that only hold others, whose children anybody may import."""

    root = fields.StringField()
    open = fields.ListField(subfield=fields.StringField())

    def check(self, graph: Any, verbose: bool) -> ContractCheck:
        past = []
        for imported in sorted(graph.find_descendants(self.root)):
            package = _package(imported, self.open)
            if package is None or imported == package or imported.removeprefix(f"{package}.") in exported(package):
                continue
            users = graph.find_modules_that_directly_import(imported)
            past += [f"{one} -> {imported}" for one in sorted(users) if one != package and not one.startswith(f"{package}.")]
        return ContractCheck(kept=not past, metadata={"past": past})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for one in check.metadata["past"]:
            output.print_error(one)


def _package(module: str, open_packages: list[str]) -> str | None:
    """The package whose face a module is behind."""
    parts = module.split(".")
    names = [".".join(parts[: number + 1]) for number in range(len(parts))]
    return next((name for name in names if name not in open_packages and (ROOT / name.replace(".", "/") / "__init__.py").exists()), None)


def exported(package: str) -> set[str]:
    """The names in `__all__` of a package; none without it."""
    tree = ast.parse((ROOT / package.replace(".", "/") / "__init__.py").read_text(encoding="utf-8"))
    found = [node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"]
    return {name for value in found for name in ast.literal_eval(value)}
