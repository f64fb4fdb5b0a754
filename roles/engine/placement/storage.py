"""Pure: what becomes of the volumes of a pod that moves to another node. The one place that knows it.

Sources (Kubernetes 1.36): pkg/volume/util/util.go (IsMultiAttachAllowed: the modes of the PersistentVolume decide, not those of its
claim), pkg/volume/csi/csi_plugin.go (CanAttach, skipAttach), pkg/volume/{iscsi,fc,flexvolume} (CanAttach),
k8s.io/csi-translation-lib/plugins (the drivers of migrated kinds; backwardCompatibleAccessModes), pkg/scheduler/framework/plugins/
volumerestrictions (ReadWriteOncePod), nodevolumelimits/utils.go (isCSIMigrationOn), component-helpers/storage/ephemeral (claim names).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

from roles.engine.harmless import one_line
from roles.engine.kube import Object, full_name, is_ending, matching, pods
from roles.engine.kube.fields import labels_of, name_of, spec_of, status_of, volumes_of


class Move(Enum):
    """What a volume does when its pod goes to another node. docs/disruption.md has a row for each."""

    #: Several nodes can use it at the same time: nothing waits.
    SHARED = "shared"
    #: It is attached to one node: the next one gets it when the last pod of that node has left, and it was unmounted and detached.
    ONE_NODE = "one node"
    #: One pod of the whole cluster: the next one is not even scheduled before this one has ended (ReadWriteOncePod).
    ONE_POD = "one pod"
    #: Its data is on one node, and on no other, ever.
    NODE_LOCAL = "node-local"
    #: A directory of whichever node the pod runs on: another node has another one.
    LEFT_BEHIND = "left behind"
    #: It lives and dies with the pod: the next pod gets a new one, without data.
    NEW = "new"
    #: Its claim is not bound, or was not read.
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Source:
    """A kind of volume source that kube-controller-manager attaches. `driver`: the CSI driver that has replaced it; `limited`: the
    scheduler counts it against that driver's limit of a node."""

    driver: str = ""
    limited: bool = False


#: The sources that are attached to nodes, beside `csi`, by their field in a volume.
ATTACHED: Mapping[str, Source] = {
    "awsElasticBlockStore": Source("ebs.csi.aws.com", True),
    "azureDisk": Source("disk.csi.azure.com", True),
    "azureFile": Source("file.csi.azure.com"),
    "cinder": Source("cinder.csi.openstack.org", True),
    "gcePersistentDisk": Source("pd.csi.storage.gke.io", True),
    "portworxVolume": Source("pxd.portworx.com", True),
    "vsphereVolume": Source("csi.vsphere.vmware.com"),
    "fc": Source(),
    "flexVolume": Source(),
    "iscsi": Source(),
    "rbd": Source(),  # until 1.30
}
#: Of a pod's own volumes (without a claim), those that one node can have, with the field that names the disk; the others are left to their
#: attacher.
_INLINE_ONE_NODE = {
    "awsElasticBlockStore": "volumeID",
    "azureDisk": "diskURI",
    "cinder": "volumeID",
    "gcePersistentDisk": "pdName",
    "portworxVolume": "volumeID",
    "vsphereVolume": "volumePath",
}
#: What kube-controller-manager attaches without a VolumeAttachment -> its name in a Node's status, behind that of its plugin
#: (GetVolumeName of pkg/volume/{iscsi,fc,flexvolume,rbd}); `name`: of the PersistentVolume, or of the volume in the pod.
_IN_NODE_STATUS: Mapping[str, Callable[[Mapping[str, Any], str], str]] = {
    "iscsi": lambda one, name: f"kubernetes.io/iscsi/{one.get('targetPortal')}:{one.get('iqn')}:{one.get('lun') or 0}",
    "fc": lambda one, name: (
        f"kubernetes.io/fc/[{' '.join(one['targetWWNs'])}]:{one['lun']}"
        if one.get("targetWWNs") and one.get("lun") is not None
        else f"kubernetes.io/fc/[{' '.join(one.get('wwids') or ())}]"
    ),
    "flexVolume": lambda one, name: f"{one.get('driver')}/{name}",
    "rbd": lambda one, name: f"kubernetes.io/rbd/{one.get('pool') or 'rbd'}:{one.get('image')}",
}
_CSI = "kubernetes.io/csi/"
_SEVERAL = frozenset(("ReadWriteMany", "ReadOnlyMany"))
_ONE_POD = "ReadWriteOncePod"
HOSTNAME = "kubernetes.io/hostname"
#: Labels of volumes and nodes that name a zone, with what has replaced them.
ZONES = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
ZONE_LABELS = (*ZONES, *ZONES.values())


@dataclass(frozen=True)
class PodVolume:
    """One volume of a pod. `name`: of its PersistentVolume, or of the disk if the pod's own spec has that; `claim`: NAMESPACE/NAME, or ""
    without one.

    `attached`: kube-controller-manager attaches it to nodes and detaches it; `driver`: that of CSI; `modes`: how it may be accessed;
    `only`: the node that has its data (NODE_LOCAL); `topology`: what a node's labels must be, in words; `on`: the nodes that have a
    VolumeAttachment of it, with the attachment's name; `unique`: its name in a Node's status, if it gets no VolumeAttachment.
    """

    name: str
    move: Move
    claim: str = ""
    attached: bool = False
    driver: str = ""
    modes: frozenset[str] = frozenset()
    only: str = ""
    topology: str = ""
    on: Mapping[str, str] = field(default_factory=dict, hash=False)
    unique: str = ""

    @property
    def key(self) -> str:
        """The same for all pods that use it."""
        return self.claim or self.name

    @property
    def waits(self) -> bool:
        """Another node can have it only after this one has given it back."""
        return self.attached and self.move in (Move.ONE_NODE, Move.ONE_POD)

    @property
    def allows_second(self) -> bool:
        """A second pod on another node can use it while the first one runs."""
        return self.move in (Move.NEW, Move.LEFT_BEHIND, Move.SHARED) and (not self.claim or bool(self.modes & _SEVERAL))

    def __str__(self) -> str:
        """For an operator."""
        if not self.claim:
            return f"volume {self.name}"
        about = ", ".join(filter(None, (f"volume {self.name}" if self.name else "", self.driver)))
        return f"PersistentVolumeClaim {self.claim.partition('/')[2]}" + (f" ({about})" if about else "")


class Storage:
    """The claims and volumes of a cluster. `of(KIND)`: its objects as the API's JSON, an empty list if they were not read."""

    def __init__(self, of: Callable[[str], Collection[Object]]) -> None:
        self._of = of
        self._nodes: dict[str, list[Object]] = {}

    def volumes(self, pod: Object) -> list[PodVolume]:
        """The volumes of a pod that hold data beyond a container's life."""
        return list(self._volumes(pod))

    def only_on(self) -> dict[str, list[str]]:
        """By node, the PersistentVolumes whose data it has and no other node ever can: those that a claim has taken."""
        found: dict[str, list[str]] = {}
        for volume in self._of("PersistentVolume"):
            if spec_of(volume).get("claimRef") and (node := self._own_node(volume)):
                found.setdefault(node, []).append(name_of(volume))
        return found

    def _volumes(self, pod: Object) -> Iterator[PodVolume]:
        namespace = pods.namespace(pod)
        for volume in volumes_of(pod):
            name = str(volume.get("name"))
            if volume.get("ephemeral"):
                # Its claim is the pod's own, named POD-VOLUME, and goes with it.
                yield PodVolume(name, Move.NEW)
            elif claim := volume.get("persistentVolumeClaim"):
                yield self._claimed(f"{namespace}/{claim.get('claimName')}")
            elif kind := next((kind for kind in _INLINE_ONE_NODE if volume.get(kind)), ""):
                disk = f"{kind} {volume[kind].get(_INLINE_ONE_NODE[kind])}"
                shared = bool(volume[kind].get("readOnly")) and kind == "gcePersistentDisk"
                yield PodVolume(disk, Move.SHARED if shared else Move.ONE_NODE, attached=True, driver=ATTACHED[kind].driver)

    def _claimed(self, key: str) -> PodVolume:
        claim = self._claims.get(key)
        if claim is None:
            return PodVolume("", Move.UNKNOWN, key)
        spec = spec_of(claim)
        modes = frozenset(map(str, spec.get("accessModes") or ()))
        name = str(spec.get("volumeName") or "")
        if not name:
            return PodVolume("", Move.ONE_POD if _ONE_POD in modes else Move.UNKNOWN, key, modes=modes)
        volume = self._by_name.get(name)
        if volume is None:  # not read, or gone: only its claim speaks for it
            return PodVolume(name, _by_modes(modes, True), key, True, "", modes)
        return self._bound(name, volume, key, modes)

    def _bound(self, name: str, volume: Object, key: str, claimed: frozenset[str]) -> PodVolume:
        spec, modes = spec_of(volume), modes_of(volume) or claimed
        attached, only = self._is_attached(volume), self._own_node(volume)
        if only is not None:
            move = Move.NODE_LOCAL
        elif "hostPath" in spec or "local" in spec:
            move = Move.LEFT_BEHIND
        else:
            move = _by_modes(claimed & {_ONE_POD} | modes, attached)
        there = self._attachments.get(name, {})
        return PodVolume(name, move, key, attached, driver_of(volume), modes, only or "", _topology(volume), there, _unique(spec, name))

    def _is_attached(self, volume: Object) -> bool:
        """A driver without a CSIDriver object, or with one that says nothing, is attached."""
        return any(kind in spec_of(volume) for kind in ("csi", *ATTACHED)) and self._attach_required.get(driver_of(volume), True)

    def _own_node(self, volume: Object) -> str | None:
        """The only node that can ever have the data ("" if it is not there any more); None if another one can. A zone with one node may get
        a second one; a directory, or a topology that names the node itself, may not."""
        spec = spec_of(volume)
        required = (spec.get("nodeAffinity") or {}).get("required")
        if required is None:
            return "" if "local" in spec else None
        terms = required.get("nodeSelectorTerms") or ()
        nodes = self._usable(terms)
        if len(nodes) > 1:
            return None
        found = name_of(nodes[0]) if nodes else ""
        if "local" in spec or "hostPath" in spec:
            return found
        named = {self._hosts[value] for value in _values(terms) if value in self._hosts}
        return named.pop() if len(named) == 1 and (not found or found in named) else None

    def _usable(self, terms: Sequence[Mapping[str, Any]]) -> list[Object]:
        """The nodes of a volume's node affinity. Many volumes have the same one."""
        key = repr(terms)
        if key not in self._nodes:
            self._nodes[key] = [node for node in self._of("Node") if matching.node_terms(terms, by_labels(node))]
        return self._nodes[key]

    # ---- what was read, by name

    @cached_property
    def _hosts(self) -> dict[str, str]:
        """The nodes by their names, and by what their label kubernetes.io/hostname has."""
        names = {name_of(node): labels_of(node).get(HOSTNAME) for node in self._of("Node")}
        return {value: name for name, host in names.items() for value in (host, name) if value}

    @cached_property
    def _claims(self) -> dict[str, Object]:
        return {full_name(one): one for one in self._of("PersistentVolumeClaim")}

    @cached_property
    def _by_name(self) -> dict[str, Object]:
        return {name_of(one): one for one in self._of("PersistentVolume")}

    @cached_property
    def _attach_required(self) -> dict[str, bool]:
        return {name_of(one): spec_of(one).get("attachRequired") is not False for one in self._of("CSIDriver")}

    @cached_property
    def _attachments(self) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for one in attachments(self._of("VolumeAttachment")):
            found.setdefault(one.volume, {})[one.node] = one.name
        return found


def modes_of(volume: Object) -> frozenset[str]:
    """The access modes of a PersistentVolume, as kube-controller-manager sees them: a GCE disk of the old kind is never written by two
    nodes, whatever it says."""
    spec = spec_of(volume)
    modes = frozenset(map(str, spec.get("accessModes") or ()))
    return frozenset(("ReadWriteOnce",)) if "gcePersistentDisk" in spec and modes != {"ReadOnlyMany"} else modes


def driver_of(volume: Object, *, limited: bool = False) -> str:
    """The CSI driver of a PersistentVolume, also of a kind that one has replaced; `limited`: only if it counts against that driver's limit.
    "" if it has none."""
    spec = spec_of(volume)
    if "csi" in spec:
        return str((spec["csi"] or {}).get("driver") or "")
    return next((one.driver for kind, one in ATTACHED.items() if kind in spec and (one.limited or not limited)), "")


def _unique(source: Mapping[str, Any], name: str) -> str:
    return next((said(source[kind], name) for kind, said in _IN_NODE_STATUS.items() if isinstance(source.get(kind), Mapping)), "")


def own_names(pod: Object) -> set[str]:
    """The names in a Node's status of the volumes that a pod has without a claim."""
    found = (_unique(volume, str(volume.get("name"))) for volume in volumes_of(pod))
    return {name for name in found if name}


@dataclass(frozen=True)
class Attachment:
    """A VolumeAttachment, or a name in a Node's status. `volume`: its PersistentVolume, or that name; "" for a pod's own volume;
    `progress`: what its detach waits for."""

    name: str
    volume: str
    node: str
    driver: str
    progress: str


def attachments(items: Iterable[Object]) -> list[Attachment]:
    return [_attachment(item) for item in items]


def in_node_status(node: Object) -> list[Attachment]:
    """The volumes that a node has without a VolumeAttachment: attached by kube-controller-manager, or not unmounted by the kubelet yet."""
    status = status_of(node)
    used = {str(name) for name in status.get("volumesInUse") or ()}
    names = {str(one.get("name")) for one in status.get("volumesAttached") or ()} | used
    progress = {True: "the kubelet there unmounts it", False: "kube-controller-manager detaches it"}
    host = name_of(node)
    return [
        Attachment(name, name, host, one_line(name.rpartition("/")[0]), progress[name in used])
        for name in sorted(names)
        if not name.startswith(_CSI)
    ]


def _attachment(item: Object) -> Attachment:
    spec, status = spec_of(item), status_of(item)
    name, driver = name_of(item), str(spec.get("attacher") or "")
    if error := (status.get("detachError") or {}).get("message"):
        progress = one_line(f"{driver} cannot detach it: {error}")
    elif is_ending(item):
        progress = f"{driver} detaches it"
    else:
        progress = "the kubelet there unmounts it"
    volume = str((spec.get("source") or {}).get("persistentVolumeName") or "")
    return Attachment(name, volume, str(spec.get("nodeName") or ""), driver, progress)


def by_labels(node: Object) -> Object:
    """A volume's node affinity sees the labels only, not the name (CheckNodeAffinity)."""
    return {"metadata": {"name": "", "labels": dict(labels_of(node))}}


def _by_modes(modes: Collection[str], attached: bool) -> Move:
    if _ONE_POD in modes:
        return Move.ONE_POD
    return Move.ONE_NODE if attached and not set(modes) & _SEVERAL else Move.SHARED


def _topology(volume: Object) -> str:
    """The nodes that a volume can be used on, by its node affinity and its labels of zones."""
    required = (spec_of(volume).get("nodeAffinity") or {}).get("required") or {}
    terms = [
        " and ".join(
            f"{one.get('key')} {one.get('operator')} {', '.join(map(str, one.get('values') or ()))}".strip() for one in expressions
        )
        for term in required.get("nodeSelectorTerms") or ()
        if (expressions := term.get("matchExpressions") or ())
    ]
    zones = [f"{key} In {value.replace('__', ', ')}" for key, value in labels_of(volume).items() if key in ZONE_LABELS]
    return " and ".join(filter(None, (" or ".join(terms), *zones)))


def _values(terms: Iterable[Mapping[str, Any]]) -> set[str]:
    """The values that a node affinity asks for."""
    return {str(value) for term in terms for one in term.get("matchExpressions") or () for value in one.get("values") or ()}
