"""Data keys: values as operators write them, the registry of all keys, the reference."""

from roles.engine.inputs import registry, unknown_keys
from roles.engine.inputs.entries import of_entries, only_absent
from roles.engine.inputs.nearest import did_you_mean, listing, unmatched
from roles.engine.inputs.reading import Data, read_common, read_host, read_model
from roles.engine.inputs.registry import Changes, Declared, NoKeys, Undo, desired_state
from roles.engine.inputs.values import (
    LIST_OR_TEXT,
    MAP_OR_TEXT,
    TEXT,
    Boolean,
    Frozen,
    Kubeconfig,
    Names,
    chosen,
    converted,
    file_path,
    names,
    written,
)

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
    "NoKeys",
    "Undo",
    "chosen",
    "converted",
    "desired_state",
    "did_you_mean",
    "file_path",
    "listing",
    "names",
    "of_entries",
    "only_absent",
    "read_common",
    "read_host",
    "read_model",
    "registry",
    "unknown_keys",
    "unmatched",
    "written",
]
