"""Pure: the filters about volumes, as far as they are simple; anything else is not judged.

Sources (Kubernetes 1.36): pkg/scheduler/framework/plugins/{volumebinding,volumezone,volumerestrictions,nodevolumelimits}, and
pkg/controller/volume/attachdetach/reconciler, since a pod that is scheduled does not start while another node has its volume. A claim that
is not bound, and a volume that a plugin judges by the cloud's own identity, is not judged.
"""

from __future__ import annotations

from collections.abc import Mapping

from roles.engine.kube import Object, is_ending, matching
from roles.engine.kube.fields import labels_of, name_of, spec_of, status_of, volumes_of
from roles.engine.placement.findings import Findings
from roles.engine.placement.storage import ATTACHED, ZONE_LABELS, ZONES, by_labels, driver_of
from roles.engine.placement.world import Room, World, claims_of

# Volumes of a pod's own spec that conflict by their own identity, or count against a limit of the node.
_NOT_JUDGED = tuple(kind for kind in ATTACHED if kind not in ("fc", "flexVolume"))
_ONE_POD = "ReadWriteOncePod"


class Volumes:
    """The volumes of one pod."""

    def __init__(self, pod: Object, world: World) -> None:
        self._world = world
        #: Why the pod fits on no node; why it cannot be judged.
        self.no: list[str] = []
        self.unknown: list[str] = []
        self.unsure: list[str] = []
        self._volumes: list[Object] = []
        # What only one node can have, and which pods that stay keep it.
        self._kept = [
            (one.name, held) for one in world.storage.volumes(pod) if one.waits for held in world.users(one.claim, pod) if held.certain
        ]
        for volume in volumes_of(pod):
            if "ephemeral" in volume:
                self.unknown.append(f"volume {volume.get('name')} is created with the pod")
            self.unknown += [f"volume {volume.get('name')} is of kind {kind}" for kind in _NOT_JUDGED if kind in volume]
        for claim in sorted(claims_of(pod)):
            self._read(claim, pod)

    def _read(self, claim: str, pod: Object) -> None:
        shown = f"PersistentVolumeClaim {claim.partition('/')[2]}"
        if self._world.claims is None or self._world.view.volumes is None:
            self.unknown.append("its PersistentVolumeClaims were not read")
            return
        found = self._world.claims.get(claim)
        if found is None:
            self.no.append(f"{shown} does not exist")
            return
        if is_ending(found):
            self.no.append(f"{shown} is being deleted")
        bound = str(spec_of(found).get("volumeName") or "")
        if not bound or status_of(found).get("phase") != "Bound":
            self.unknown.append(f"{shown} is not bound")
            return
        volume = self._world.volumes.get(bound)
        if volume is None:
            self.no.append(f"the volume of {shown} does not exist")
            return
        self._volumes.append(volume)
        if "rbd" in spec_of(volume):
            self.unknown.append(f"volume {bound} is of kind rbd, which Kubernetes has no more since 1.31")
        others = self._world.users(claim, pod)
        if _ONE_POD in (spec_of(found).get("accessModes") or ()):
            if any(held.certain for held in others):
                self.no.append(f"{shown} is {_ONE_POD} and in use")
            elif others:
                self.unsure.append(f"{shown} is {_ONE_POD} and may be in use")

    @property
    def idle(self) -> bool:
        """No node is judged by it."""
        return not (self._volumes or self._kept)

    def check(self, room: Room, found: Findings) -> None:
        """The filters for one node."""
        for volume in self._volumes:
            name = name_of(volume)
            required = (spec_of(volume).get("nodeAffinity") or {}).get("required")
            if required is not None and not matching.node_terms(required.get("nodeSelectorTerms") or (), by_labels(room.node)):
                found.no.append(f"volume {name} cannot be used there")
            if _other_zone(volume, room.labels):
                found.no.append(f"volume {name} is in another zone")
        for name, held in self._kept:
            if room.name not in held.nodes:
                found.waits.append(f"volume {name} stays attached to {', '.join(held.nodes)}, where {held.name} uses it")
        self._check_limits(room, found)

    def _check_limits(self, room: Room, found: Findings) -> None:
        new = {driver for volume in self._volumes if (driver := _driver(volume))}
        if not new:
            return
        view = self._world.view
        if view.csi_nodes is None or view.attachments is None:
            found.unknown.append("the limits of its volumes' drivers were not read")
            return
        drivers = self._world.drivers.get(room.name, {})
        for driver in sorted(new):
            if driver not in drivers:
                found.unknown.append(f"the CSI driver {driver} is not on it")
                continue
            limit = (drivers[driver].get("allocatable") or {}).get("count")
            if limit is not None and self._count(room, driver) > int(limit):
                found.unknown.append(f"it may have more than {limit} volumes of {driver} then")

    def _count(self, room: Room, driver: str) -> int:
        """The volumes of a driver that the node may have to hold, with those of this pod: an upper bound."""
        names = {name_of(one) for one in self._volumes if _driver(one) == driver}
        for held in room.held:
            for claim in held.claims:
                bound, of = self._world.driver(claim)
                # Of a claim that is not known, the driver is not known either.
                if of is None or of == driver:
                    names.add(bound or claim)
        names |= {one.volume or one.name for one in self._world.attached.get(room.name, ()) if one.driver == driver}
        # A pod there may have volumes that are created with it, or are part of its spec.
        extra = sum(held.own_claims for held in room.held)
        return len(names) + extra


def _driver(volume: Object) -> str:
    """The driver whose limit the volume counts against."""
    return driver_of(volume, limited=True)


def _other_zone(volume: Object, labels: Mapping[str, str]) -> bool:
    if not any(label in labels for label in ZONE_LABELS):
        return False
    for key, value in labels_of(volume).items():
        if key in ZONE_LABELS and labels.get(key, labels.get(ZONES.get(key, key))) not in value.split("__"):
            return True
    return False
