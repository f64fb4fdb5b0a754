"""The registry is whole, its pages are in step with the models, and each deploy asks it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from roles.engine.inputs import reference, registry
from roles.engine.inputs.__main__ import FILES, FOLDER
from roles.engine.inputs.registry import Key

ROOT = Path(__file__).resolve().parents[3]
EVERY = [pytest.param(key, id=f"{key.declared.fields.__module__.rpartition('.')[0]}.{key.name}") for key in registry.every()]


def value(key: Key, written: Any) -> Any:
    """As the model reads it, alone."""
    return TypeAdapter(key.declared.fields.model_fields[key.name].rebuild_annotation()).validate_python(written)


@pytest.mark.parametrize("name", FILES)
def test_the_pages_are_in_step_with_the_models(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == FILES[name](), f"run `{reference.COMMAND}`"


@pytest.mark.parametrize("key", EVERY)
def test_each_key_is_described_and_its_examples_are_taken(key: Key) -> None:
    assert key.description and not key.description.endswith("."), "Field(description=...)"
    assert key.examples, "Field(examples=[...])"
    for example in key.examples:
        value(key, example)
        assert list(failures(key.schema, example)) == [], "the schema takes it too"


@pytest.mark.parametrize("key", EVERY)
def test_what_the_schema_refuses_the_model_refuses(key: Key) -> None:
    """Values that no key takes, and those next to a bound."""
    bounds = [key.schema.get("minimum"), key.schema.get("maximum")]
    tried = [object, 3.5, *(bound + step for bound, step in zip(bounds, (-1, 1), strict=True) if bound is not None)]
    for written in tried:
        if list(failures(key.schema, written)):
            with pytest.raises((ValidationError, ValueError)):
                value(key, written)


def failures(schema: Any, written: Any) -> Iterator[str]:
    """As far as the schemas here go (draft 2020-12): why a value is not valid."""
    types = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float), "null": type(None)}
    if "anyOf" in schema:
        if all(list(failures(option, written)) for option in schema["anyOf"]):
            yield f"{written!r}: none of {schema['anyOf']}"
        return
    if "const" in schema or "enum" in schema:
        if not any(written == known and type(written) is type(known) for known in schema.get("enum", [schema.get("const")])):
            yield f"{written!r} is none of the values"
        return
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(isinstance(written, types[name]) and (name == "boolean" or not isinstance(written, bool)) for name in names):
            yield f"{written!r} is no {names}"
    if isinstance(written, int) and not schema.get("minimum", written) <= written <= schema.get("maximum", written):
        yield f"{written} is out of bounds"
    if isinstance(written, str) and not re.search(schema.get("pattern", ""), written):
        yield f"{written} is not {schema['pattern']}"
    if isinstance(written, list):
        for item in written:
            yield from failures(schema.get("items", {}), item)
    if isinstance(written, dict):
        if len(written) < schema.get("minProperties", 0):
            yield "empty"
        for name, item in written.items():
            yield from failures(schema.get("propertyNames", {}), name)
            more = schema.get("properties", {}).get(name, schema.get("additionalProperties", {}))
            if more is False and not any(re.search(pattern, name) for pattern in schema.get("patternProperties", ())):
                yield f"{name} is no property"
            yield from failures(more or {}, item)


def test_a_name_that_several_models_read_is_written_in_one_way() -> None:
    by_name: dict[str, list[Key]] = {}
    for key in registry.every():
        by_name.setdefault(key.name, []).append(key)
    differ = [name for name, found in by_name.items() if len({json.dumps(key.schema, sort_keys=True) for key in found}) > 1]
    # Each of these shows in ways of its own; the schema of a host's data takes all of them.
    assert differ == ["format", "watch"]
    assert not any(list(failures(reference.schema()["properties"]["watch"], written)) for written in (True, 60))
    choices = [key.schema["enum"] for key in by_name["format"]]
    assert set(reference.schema()["properties"]["format"]["enum"]) == {choice for each in choices for choice in each}


def test_the_schema_knows_strangers() -> None:
    schema = reference.schema()
    assert set(schema["properties"]) == registry.names()
    good = {"feature_gates": {"NodeSwap": True}, "max_unavailable": "25%", "x_rack": 5, "_sudo": True, "ssh_user": "ops", "soak": 60}
    assert list(failures(schema, good)) == []
    for key, written in {
        "feature_gate": {},
        "soak": -1,
        "max_unavailable": 0,
        "feature_gates": {"A": "on"},
        "components": ["etcd"],
    }.items():
        assert list(failures(schema, {key: written})), key


READERS = ("read_host", "read_model", "read_common", "one", "same", "_read")
Sources = list[tuple[Path, ast.Call | ast.ImportFrom]]


@pytest.fixture(scope="module")
def sources() -> Sources:
    """All calls and imports of the files of roles/ that call what is looked for."""
    looked_for = re.compile(rf"\b(?:data|{'|'.join(READERS)})\(")
    return [
        (path.relative_to(ROOT), node)
        for path in sorted((ROOT / "roles").rglob("*.py"))
        if looked_for.search(text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call | ast.ImportFrom)
    ]


def test_each_key_that_code_reads_by_its_name_is_registered(sources: Sources) -> None:
    """`remote.data("key")`; a key that only the code knows would be refused as a stranger."""
    read = {
        (str(path), node.args[0].value)
        for path, node in sources
        if isinstance(node, ast.Call)
        and (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")) == "data"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    }
    assert read, "the registry itself reads own_keys"
    assert {(path, key) for path, key in read if key not in registry.names()} == set()


def models_read(sources: Sources) -> Iterator[tuple[str, str]]:
    """Module and name of each model that is given to a reader of data (roles/engine/inputs/reading.py, rollout/deploying.py)."""
    origins = {
        (path, alias.name): node.module
        for path, node in sources
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    for path, node in sources:
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in READERS:
            for name in (
                found.id for found in node.args if isinstance(found, ast.Name) and found.id[0].isupper() and not found.id.isupper()
            ):
                yield origins.get((path, name)) or str(path).removesuffix(".py").replace("/", ".").removesuffix(".__init__"), name


def test_each_model_that_reads_data_is_registered(sources: Sources) -> None:
    reading = set(models_read(sources))
    assert {module for module, _ in reading} >= {
        "roles.feature_gates.model",
        "roles.engine.runs.options",
        "roles.priority_classes.model",
        "roles.audit",
    }
    registered = {(declared.fields.__module__, declared.fields.__name__) for declared in registry.every_model()}
    assert reading - registered == set(), "add it to DATA_KEYS in roles/<name>/__init__.py"


@pytest.mark.parametrize("path", sorted((ROOT / "deploys").glob("*.py")), ids=lambda path: path.stem)
def test_each_deploy_is_one_call(path: Path) -> None:
    body = ast.parse(path.read_text()).body
    calls = [ast.unparse(node.value.func) for node in body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    assert calls == [path.stem], "the decorator of the role does all else"


def test_each_deploy_that_is_named_is_there() -> None:
    named = {deploy for declared in registry.every_model() for deploy in declared.deploys} - {registry.EVERY_DEPLOY}
    assert named <= {path.stem for path in (ROOT / "deploys").glob("*.py")}
