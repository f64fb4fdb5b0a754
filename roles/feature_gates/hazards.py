"""Gates that every component accepts and that can still do harm: each needs consent by name (--data allow_hazards=NAME). Pure.

Also the gates of kubeadm itself, which no component knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Hazard:
    """Setting `gate` to `value` on a component of a minor from `since` on and before `until` (None: all later ones)."""

    gate: str
    value: bool
    since: int
    until: int | None
    why: str

    def applies(self, minor: int, value: bool) -> bool:
        return value == self.value and self.since <= minor and (self.until is None or minor < self.until)


HAZARDS: Final = (
    Hazard(
        "InPlacePodVerticalScaling",
        True,
        27,
        33,
        "before 1.33, turning it on restarts containers all over the cluster (kubernetes#122028), and KEP-1287 does not support turning it"
        " off again while resizes are pending",
    ),
    Hazard(
        "InPlacePodVerticalScaling", False, 27, 35,
        "pods with pending resizes may be left with containers in an unknown state; drain the nodes first (KEP-1287)",
    ),
    Hazard(
        "SidecarContainers",
        False,
        28,
        33,
        "a kubelet without it cannot run pods that have sidecars, and removes all their containers; delete these pods or drain the nodes"
        " first (KEP-753)",
    ),
    Hazard(
        "HPAConfigurableTolerance", True, 33, None,
        "it cannot be turned off again: tolerances that HorizontalPodAutoscalers already have stay in effect (KEP-4951)",
    ),
)  # fmt: skip

# cmd/kubeadm/app/features/features.go of 1.21 to 1.36, without the gates that the components know too.
KUBEADM: Final = frozenset(
    {
        "ControlPlaneKubeletLocalMode", "EtcdLearnerMode", "NodeLocalCRISocket", "PublicKeysECDSA", "RootlessControlPlane",
        "UnversionedKubeletConfigMap", "UpgradeAddonsBeforeControlPlane", "WaitForAllControlPlaneComponents",
    }
)  # fmt: skip
