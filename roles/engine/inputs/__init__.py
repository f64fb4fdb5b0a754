"""Data keys: values as operators write them, the registry of all keys, the reference."""

from roles.engine.inputs import registry
from roles.engine.inputs.reading import Data, read_common, read_host, read_model
from roles.engine.inputs.registry import Declared
from roles.engine.inputs.unknown_keys import WAY_OUT, unknown
from roles.engine.inputs.values import (
    LIST_OR_TEXT,
    MAP_OR_TEXT,
    TEXT,
    Boolean,
    Frozen,
    Kubeconfig,
    Names,
    chosen,
    file_path,
    names,
    written,
)

__all__ = [
    "LIST_OR_TEXT",
    "MAP_OR_TEXT",
    "TEXT",
    "WAY_OUT",
    "Boolean",
    "Data",
    "Declared",
    "Frozen",
    "Kubeconfig",
    "Names",
    "chosen",
    "file_path",
    "names",
    "read_common",
    "read_host",
    "read_model",
    "registry",
    "unknown",
    "written",
]
