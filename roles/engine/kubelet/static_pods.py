"""Gates of a kubelet that change its static pods. Pure.

Before 1.33 InPlacePodVerticalScaling adds `resizePolicy` to each container that requests CPU or memory (pkg/apis/core/v1/defaults.go;
removed by kubernetes#128920). A static pod's UID is a hash of the whole pod (pkg/kubelet/config/common.go, applyDefaults).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_GATE = "InPlacePodVerticalScaling"
# In these minors it is off by default.
_MINORS = range(27, 33)


def recreated_by(minor: int | None, gates: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a kubelet of this minor recreates its static pods. `gates`: "before" and "after" of each gate, None if it is not set."""
    found = gates.get(_GATE)
    return minor in _MINORS and found is not None and bool(found.get("before")) is not bool(found.get("after"))


def warning(components: Iterable[str]) -> str:
    """What the plan says of that; `components`: those of the node's control plane, none on a worker."""
    names = ", ".join(sorted(components))
    which = f"at the same time ({names}, and etcd and others if they run here); with one control plane the API is down meanwhile"
    return (
        f"kubelet: before 1.33 {_GATE} adds resizePolicy to the containers of static pods that request CPU or memory. That changes their"
        f" UIDs: the restart recreates this node's static pods{f' {which}' if names else ', if it has any'} (kubernetes#128917)"
    )
