"""Keys that map names of objects to their fields, or to `absent`: as text, and their problems in terms of the data. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from roles.engine.bounds import digits
from roles.engine.inputs.nearest import did_you_mean
from roles.engine.inputs.reading import Words


def only_absent(text: str, form: str, what: str, example: str) -> dict[str, str]:
    """`shop/web=absent,shop/db=absent`. (pyinfra itself reads JSON in --data.) Raises ValueError."""
    found = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        key, equals, value = item.partition("=")
        if not equals or value.strip() != "absent":
            raise ValueError(f"{item!r} is not {form}=absent; write {what} into group_data/all.py, or as JSON: --data '{example}'")
        found[key.strip()] = "absent"
    return found


def of_entries(known: Mapping[str, Sequence[str]], choices: Sequence[str], spellings: Sequence[str] = ()) -> Words:
    """Each problem by entry, field, value, rule and way out. `known`: the fields of an entry, by key; `choices`: of the one field that has
    some; `spellings`: other names of fields."""

    def sentence(item: Any, values: Mapping[str, Any]) -> str:
        key, *rest = [str(part) for part in item["loc"]]
        place = key
        if key in known and rest and (index := digits(rest[0])) is not None and isinstance(values[key], Mapping):
            place += f": {list(values[key])[index]}"
        field = rest[1] if len(rest) > 1 else ""
        inside = f"{place}: {field}" if field else place
        match item["type"]:
            case "value_error":
                return f"{inside}: {str(item['msg']).removeprefix('Value error, ')}"
            case "extra_forbidden":
                fields = known.get(key, ())
                return f"{place}: unknown field {field!r}{did_you_mean(field, [*fields, *spellings]) or ','} fields are {', '.join(fields)}"
            case "literal_error":
                must = " or ".join(choices) if len(choices) == 2 else f"one of {', '.join(choices)}"
                return f"{inside} is {item['input']!r}, but must be {must}{did_you_mean(str(item['input']), choices)}"
        return f"{inside}: {item['msg']}, but the value is {item['input']!r}"

    def sentences(error: ValidationError, values: Mapping[str, Any]) -> list[str]:
        return [sentence(item, values) for item in error.errors()]

    return sentences
