"""Data keys: values as operators write them, the registry of all keys, the reference."""

from roles.engine.inputs import broken_json, entries, registry, unknown_keys, values
from roles.engine.inputs.nearest import choice, did_you_mean, listing, unmatched
from roles.engine.inputs.reading import Data, read_common, read_host, read_model
from roles.engine.inputs.registry import Changes, Declared, Undo
from roles.engine.inputs.values import LIST_OR_TEXT, MAP_OR_TEXT, TEXT, Boolean, Frozen, Kubeconfig, Names, OfNodes, names

__all__ = [
    "LIST_OR_TEXT",
    "MAP_OR_TEXT",
    "TEXT",
    "Boolean",
    "Changes",
    "Data",
    "Declared",
    "Frozen",
    "Kubeconfig",
    "Names",
    "OfNodes",
    "Undo",
    "broken_json",
    "choice",
    "did_you_mean",
    "entries",
    "listing",
    "names",
    "read_common",
    "read_host",
    "read_model",
    "registry",
    "unknown_keys",
    "unmatched",
    "values",
]
