"""A kubelet's configuration files, each content parsed once: on most clusters the nodes' files are the same bytes. Callers do not change
what is returned. As the functions of these names in roles.engine.editing.kubelet_config. Pure."""

from __future__ import annotations

from functools import lru_cache

from roles.engine.editing import kubelet_config

_once = lru_cache(2048)
lines, read, gates = _once(kubelet_config.lines), _once(kubelet_config.read), _once(kubelet_config.gates)
