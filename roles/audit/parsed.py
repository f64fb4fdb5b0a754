"""A kubelet's configuration files, each content parsed once: on most clusters the nodes' files are the same bytes. Callers do not change
the returned values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from roles.engine.editing import kubelet_config

_CONTENTS = 2048


@lru_cache(_CONTENTS)
def lines(data: bytes) -> Mapping[tuple[str, ...], int]:
    """As roles.engine.editing.kubelet_config.lines. Raises FormatError."""
    return kubelet_config.lines(data)


@lru_cache(_CONTENTS)
def read(data: bytes) -> Mapping[str, Any]:
    """As roles.engine.editing.kubelet_config.read. Raises FormatError."""
    return kubelet_config.read(data)


@lru_cache(_CONTENTS)
def gates(data: bytes) -> Mapping[str, bool]:
    """As roles.engine.editing.kubelet_config.gates. Raises FormatError."""
    return kubelet_config.gates(data)
