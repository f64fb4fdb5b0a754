"""Gates that every component takes and that can still hurt: each needs consent by its name (--data allow_hazards=NAME). Pure.

Also the gates that are kubeadm's own, and no component's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Hazard:
    """Setting `gate` to `value` on a component of a minor from `since` up to, and without, `until` (None: all after)."""

    gate: str
    value: bool
    since: int
    until: int | None
    why: str

    def here(self, minor: int, value: bool) -> bool:
        return value == self.value and self.since <= minor and (self.until is None or minor < self.until)


HAZARDS: Final = (
    Hazard(
        "InPlacePodVerticalScaling",
        True,
        27,
        33,
        "before 1.33 turning it on restarts containers all over the cluster (kubernetes#122028), and KEP-1287 does not support turning it"
        " off again while resizes are pending",
    ),
    Hazard(
        "InPlacePodVerticalScaling",
        False,
        27,
        35,
        "pods with pending resizes may be left with containers in an unknown state; drain the nodes first (KEP-1287)",
    ),
    Hazard(
        "SidecarContainers",
        False,
        28,
        33,
        "a kubelet without it cannot go on with pods that have sidecars and cleans up all their containers; delete these pods or drain the"
        " nodes first (KEP-753)",
    ),
    Hazard(
        "HPAConfigurableTolerance",
        True,
        33,
        None,
        "it cannot be turned off again: tolerances that HorizontalPodAutoscalers have by then stay in force (KEP-4951)",
    ),
)

# cmd/kubeadm/app/features/features.go of 1.21 to 1.36, without those that the components know too.
KUBEADM: Final = frozenset(
    {
        "ControlPlaneKubeletLocalMode",
        "EtcdLearnerMode",
        "NodeLocalCRISocket",
        "PublicKeysECDSA",
        "RootlessControlPlane",
        "UnversionedKubeletConfigMap",
        "UpgradeAddonsBeforeControlPlane",
        "WaitForAllControlPlaneComponents",
    }
)
