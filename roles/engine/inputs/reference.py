"""docs/reference/data.md and data.schema.json, generated from the models. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from roles.engine.inputs import registry
from roles.engine.inputs.registry import Declared, Key
from roles.engine.inputs.unknown_keys import OWN_PREFIX

COMMAND = "python -m roles.engine.inputs"
# JSON schema's name of a type -> the page's.
_TYPES = {
    "array": "list",
    "object": "map",
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "boolean",
}
_INTRODUCTION = f"""# Data keys

<!-- Generated from the models by `{COMMAND}`; a test checks that it is up to date. -->

All keys that a deploy reads, from the inventory (inventories/prod.py, group_data/) or from `--data KEY=VALUE` for one run. If a key is
set several times, the first of these values counts, as a whole: `--data`, the host's own data, its groups' data, the data of `all`.
data.schema.json in this folder has the keys as a JSON schema (draft 2020-12) of one host's data.

In an inventory, a deploy ignores keys that only other deploys read. In `--data`, which is for one run, it refuses them; also a key without
a value, a key that is given twice, and broken JSON. A key that no deploy reads is refused by all of them, before a command runs on any
host:

    w1.example.net and 2 more: group_data/workers.py: eviction_hrad is not a key of daytwo's data; did you mean eviction_hard?

pyinfra's own keys (`ssh_user`, `_sudo` and the like) are accepted. Your own keys, for other deploys with the same inventory, must begin
with `{OWN_PREFIX}` or `_`, or be listed in `own_keys`.

A key that is called a consent is for one run: set it with `--data`, and do not leave it in a file.
"""


def markdown() -> str:
    """The page."""
    shown = [declared for declared in registry.every_model() if declared.fields.model_fields]
    return "\n".join([_INTRODUCTION, *(line for declared in shown for line in _section(declared))])


def _section(declared: Declared) -> Iterator[str]:
    yield f"## {', '.join(declared.deploys)}\n"
    if declared.also:
        yield f"It also reads, of other deploys: {', '.join(f'`{name}`' for name in declared.also)}.\n"
    yield "| key | type | meaning | default | example |"
    yield "|---|---|---|---|---|"
    for key in registry.of(declared):
        cells = (f"`{key.name}`", _type(key.schema), key.description, _default(key), _examples(key))
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


def _type(schema: Mapping[str, Any]) -> str:
    """In words: `map, or text`, `whole number, 45 to 86400`."""
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"] if option.get("type") != "null")
    for word in ("const", "enum"):
        if word in schema:
            values = schema[word] if word == "enum" else [schema[word]]
            return " or ".join(f"`{value}`" for value in values)
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    text = " or ".join(_TYPES[name] for name in types)
    if "maximum" in schema:
        text += f", {schema.get('minimum', 0)} to {schema['maximum']}"
    return text


def _default(key: Key) -> str:
    if key.default is None or key.default == "" or isinstance(key.default, (dict, tuple)):
        return ""
    return f"`{json.dumps(key.default) if not isinstance(key.default, str) else key.default}`"


def _examples(key: Key) -> str:
    """As in an inventory; a text instead of a structure as in --data."""
    if key.description.startswith("consent"):
        return ", ".join(
            f"`--data {key.name}={'true' if given is True else given}`" for given in key.examples if not isinstance(given, list)
        )
    structured = any(not isinstance(example, (str, bool, int)) for example in key.examples)
    return ", ".join(
        f"`--data {_quoted(f'{key.name}={example}')}`" if structured and isinstance(example, str) else f"`{key.name} = {example!r}`"
        for example in key.examples
    )


def _quoted(word: str) -> str:
    """Quoted for a shell, if necessary."""
    return f"'{word}'" if "<" in word else word


def schema() -> dict[str, Any]:
    """One host's data. A name that several models read has the description of each. Their schemas are the same (a test checks this), or
    each has its own choices or type, and the name has all of them."""
    properties: dict[str, dict[str, Any]] = {}
    for key in registry.every():
        description = f"{', '.join(key.declared.deploys)}: {key.description}"
        if key.name in properties:
            same = properties[key.name]
            same["description"] += f"; {description}"
            if "enum" in key.schema:
                same["enum"] = list(dict.fromkeys([*same["enum"], *key.schema["enum"]]))
                same["examples"] = list(dict.fromkeys([*same["examples"], *key.examples]))
            elif key.schema.get("type") != same.get("type"):
                # The bounds of a number say nothing of a value of another type.
                same |= {**key.schema, **same, "type": [same["type"], key.schema["type"]], "examples": [*same["examples"], *key.examples]}
        else:
            readers = sorted(registry.readers()[key.name])
            properties[key.name] = {"description": description, **key.schema, "examples": list(key.examples), registry.READERS: readers}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "daytwo: the data of one host",
        "description": f"Generated from the models by `{COMMAND}`. Keys that begin with _ or ssh_ are pyinfra's; {OWN_PREFIX} is free.",
        "type": "object",
        "properties": dict(sorted(properties.items())),
        "patternProperties": {f"^({OWN_PREFIX}|_|ssh_|docker_)": {}},
        "additionalProperties": False,
    }


def schema_text() -> str:
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
