"""Changes of valid objects, answers and values, as an API's schema, a node or an operator may have them."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

TEXTS = (
    "", "x", "\x1b[2J", "a\nb", "\u202e", "-1", "9" * 40, "null", "[" * 5000, "'\"`$(x)", "é" * 300, "/", "..", "{}", "true", " ",
    "a=b,c=d",
)  # fmt: skip
TIMES = (
    "9999-12-31T23:59:59Z", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "2026-03-01T12:00:00.999999999Z",
    "2026-03-01T12:00:00-23:59", "2300-01-01T00:00:00Z", None, "",
)  # fmt: skip
QUANTITIES = ("0", "100E", "9223372036854775807Ei", "1e30", "1n", "999999999999Ti", "0.0000001", "1")
#: What the API refuses an object without (pkg/apis/core/validation/validation.go, validateNodeTaints).
_REQUIRED = frozenset(("key", "effect"))
NUMBERS = ("0", "-0.0", "nan", "inf", "1e999", "1e308", "1_0", "٣")
WHOLE = (0, 1, 2**31 - 1, 2**63 - 1)
#: What the schema wants, or what says which object it is.
_KEPT = frozenset(
    ("metadata", "name", "namespace", "uid", "kind", "apiVersion", "spec", "containers", "template", "selector", "controller")
)


def mutated(random: Random, tree: Any) -> Any:
    """A copy with some values replaced, or removed."""
    found = copy.deepcopy(tree)
    for _ in range(random.randint(1, 4)):
        places = list(_places(found, ""))
        if not places:
            break
        parent, key, value, name = random.choice(places)
        if isinstance(parent, dict) and random.random() < 0.2 and name not in _KEPT | _REQUIRED:
            del parent[key]
        else:
            parent[key] = _other(random, name, value)
    return found


ANY = (None, 7, -1, 2**70, 1.5, True, "x", [], {}, [None], {"a": 1})


def anything(random: Random, tree: Any) -> Any:
    """A copy in which one value may be of any type: what no schema of the API's own checks."""
    found = copy.deepcopy(tree)
    places = list(_all(found))
    if places and random.random() < 0.8:
        parent, key = random.choice(places)
        parent[key] = copy.deepcopy(random.choice(ANY))
    return found


def _all(tree: Any) -> Any:
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield tree, key
        yield from _all(value)


def _places(tree: Any, name: str) -> Any:
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in pairs:
        own = key if isinstance(key, str) else name
        if isinstance(value, dict | list):
            yield from _places(value, name if name in ("requests", "limits", "disruptedPods") else own)
        elif own not in _KEPT or name in ("annotations", "labels"):
            yield tree, key, value, name if name in ("requests", "limits", "disruptedPods") else own


def _other(random: Random, name: str, value: Any) -> Any:
    if name in ("requests", "limits"):
        return random.choice(QUANTITIES)
    if name == "disruptedPods" or name.endswith(("Time", "Timestamp", "At")):
        return random.choice(TIMES)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice(WHOLE)
    return random.choice(TEXTS) if isinstance(value, str) else value


def mutated_line(random: Random, line: str) -> str:
    """A line of a node's answer with one field replaced, doubled, cut, or removed."""
    fields = line.split(" ")
    place = random.randrange(len(fields))
    match random.randrange(4):
        case 0:
            fields[place] = random.choice((*TEXTS, *NUMBERS)).replace("\n", "")
        case 1:
            fields.insert(place, fields[place])
        case 2:
            fields[place] = fields[place][: random.randrange(len(fields[place]) + 1)]
        case _:
            del fields[place]
    return " ".join(fields)
