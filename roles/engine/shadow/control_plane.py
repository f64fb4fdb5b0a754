"""A shadow control plane: starts, is filled, is asked, and is gone."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from roles.engine.api import ApiError
from roles.engine.bridge import doing
from roles.engine.control_plane import own_etcd
from roles.engine.editing import FormatError, yaml_text
from roles.engine.kube import Object, full_name
from roles.engine.kube.fields import name_of
from roles.engine.kube.pods import node_of
from roles.engine.node import is_younger
from roles.engine.proof import SurveyedNode
from roles.engine.remote import RemoteError
from roles.engine.shadow import filling
from roles.engine.shadow.credentials import new_credentials
from roles.engine.shadow.programs import extenders, programs
from roles.engine.shadow.question import Move, PlacedPod, Verdict, queues, refused, settled
from roles.engine.shadow.store import ShadowError, Store
from roles.engine.shadow.unit import Own, Unit, ports

# Seconds: until etcd and the API server serve, until the scheduler places its first pod, and for the pods of one wave.
START_SECONDS, SCHEDULER_SECONDS, WAVE_SECONDS = 60, 60, 60
# Bytes that the three programs need without any object, and their limit; each byte of the copy is in memory about so often.
LEAST, LIMIT, COPIES = 600 << 20, 1 << 30, 14
#: A node and a pod of daytwo's own: once the pod has the node, the scheduler has seen all that was written before.
_MARK = "daytwo-mark"


def own_components(nodes: Iterable[SurveyedNode]) -> tuple[SurveyedNode, Own]:
    """The first node whose own components a shadow can run. Raises ShadowError."""
    seen = []
    for node in nodes:
        api, scheduler = node.components.get("kube-apiserver"), node.components.get("kube-scheduler")
        if api is None or scheduler is None or None in (api.manifest_path, scheduler.manifest_path):
            continue
        if own_etcd(node.kubelet) is None:
            seen.append(f"{node.remote.name} has no etcd of its own as a static pod")
        elif not node.remote.uses_ssh:
            seen.append(f"{node.remote.name} is not reached over SSH")
        else:
            return node, Own(api, scheduler, f"kube-system_etcd-{api.node_name}")
    why = "; ".join(seen) or "no node with kube-apiserver and kube-scheduler as static pods was read"
    raise ShadowError(f"a shadow control plane cannot run here: {why}")


class Programs(Protocol):
    """The programs of a shadow, which run somewhere: a `Unit`."""

    def schedule(self) -> None: ...
    def check(self) -> None: ...
    def wait_until(self, true: Callable[[], bool], seconds: float, what: str) -> None: ...


class ShadowControlPlane:
    """A running one. It holds a copy of the cluster, and each question begins with that copy."""

    def __init__(self, programs: Programs, store: Store, contents: Mapping[str, dict[str, Any]], schedulers: Collection[str]) -> None:
        self._unit, self._store, self._schedulers = programs, store, schedulers
        self._hold(contents)
        self._made = 0

    def _hold(self, contents: Mapping[str, dict[str, Any]]) -> None:
        self._contents = contents
        claims = (one for one in contents.values() if one["kind"] == "PersistentVolumeClaim")
        self._claims: dict[str, Object] = {full_name(one): one for one in claims}
        #: Pods of the copy that wait for this scheduler; one that it places meanwhile is written back after each question.
        self._waiting = {key for key, one in contents.items() if self._waits(one)}

    def ask(self, waves: Sequence[Sequence[Move]], cordon: Collection[str] = (), remove: Collection[str] = ()) -> Verdict:
        """What becomes of these moves, wave by wave, once the nodes `cordon` take no new pods and the nodes `remove` are deleted. All moves
        of a wave begin at once, and a wave ends when each of its pods has a node, or the scheduler has none for it. Nothing of it stays.

        Raises ShadowError.
        """
        changed: dict[str, Any] = {}
        with self._understood():
            try:
                return self._ask(waves, cordon, remove, changed)
            finally:
                self._restore(changed)

    def _ask(self, waves: Sequence[Sequence[Move]], cordon: Collection[str], remove: Collection[str], changed: dict[str, Any]) -> Verdict:
        nodes = {name_of(one): key for key, one in self._contents.items() if one["kind"] == "Node"}
        if unknown := [name for name in (*cordon, *remove) if name not in nodes]:
            raise ShadowError(f"no node of this cluster: {', '.join(unknown)}")
        before = {nodes[name]: filling.cordoned(self._contents[nodes[name]]) for name in cordon}
        self._seen({**before, **{nodes[name]: None for name in remove}}, changed)
        found: list[PlacedPod] = []
        for number, wave in enumerate(waves, 1):
            doing(f"ask kube-scheduler about wave {number} of {len(waves)}")
            found += self._wave(wave, changed)
        doing("")
        return Verdict(tuple(found))

    def _wave(self, wave: Sequence[Move], changed: dict[str, Any]) -> list[PlacedPod]:
        new: dict[str, Move] = {}
        writes: dict[str, dict[str, Any] | None] = {}
        late: dict[str, None] = {}
        unjudged: list[PlacedPod] = []
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for move in wave:
            if move.old is not None:
                (late if move.first else writes)[filling.key_of("Pod", move.old)] = None
        for move in wave:
            if move.new is None:
                continue
            if why := filling.unjudged(move.new, self._schedulers, self._claims):
                unjudged.append(PlacedPod(_name(move), "not judged", why=why))
                continue
            self._made += 1
            made = filling.as_new(move.new, f"{name_of(move.new)[:200]}-shadow-{self._made}", str(uuid.uuid4()), now)
            key = filling.key_of("Pod", made)
            new[key], writes[key] = move, made
        self._write(writes, changed)
        answers = self._placed(new) if new else {}
        self._write(late, changed)
        return [*(_placed(move, answers[key]) for key, move in new.items()), *unjudged]

    def _placed(self, new: Collection[str]) -> Mapping[str, Object | None]:
        """These pods, once the scheduler has placed each or has no more to try."""
        found: Mapping[str, Object | None] = {}

        def judged() -> bool:
            nonlocal found
            found = self._store.read(new)
            return all(pod is None or node_of(pod) or refused(pod) is not None for pod in found.values())

        def rested() -> bool:
            nonlocal found
            found = self._store.read(new)
            if all(pod is not None and node_of(pod) for pod in found.values()):
                return True
            everything = {**self._store.read(self._waiting), **found}
            return settled(everything, new, queues(self._store.metrics()))

        self._unit.wait_until(judged, WAVE_SECONDS, "kube-scheduler did not judge all pods")
        # One that was refused may find a node after another one, and waits for its next try: then it is too late for nobody to say no.
        with contextlib.suppress(ShadowError):
            self._unit.wait_until(rested, WAVE_SECONDS / 2, "kube-scheduler still tries")
        self._unit.check()
        return found

    def _seen(self, writes: Mapping[str, dict[str, Any] | None], changed: dict[str, Any], seconds: float = WAVE_SECONDS) -> None:
        """Write these, and wait until the scheduler has seen them and all that was written before. The mark's pod gets its node only if the
        scheduler knows that node, which comes after all other nodes, and the pod's partner there, which comes after all other pods."""
        self._made += 1
        name = f"{_MARK}-{self._made}"
        node, partner, pod = mark(name, next(iter(self._schedulers)))
        place, *keys = filling.key_of("Node", node), filling.key_of("Pod", partner), filling.key_of("Pod", pod)
        self._write({**writes, place: node, keys[0]: partner, keys[1]: pod}, changed)
        self._unit.wait_until(
            lambda: node_of(self._store.read(keys)[keys[1]] or {}) == name, seconds, "kube-scheduler did not place a first pod"
        )
        # Its pods stay until the end of the question, so that nothing else ever finds room there.
        self._write({place: None}, changed)

    def _write(self, writes: Mapping[str, dict[str, Any] | None], changed: dict[str, Any]) -> None:
        changed.update(writes)
        self._store.write(writes)

    def _waits(self, item: Object) -> bool:
        return item["kind"] == "Pod" and not node_of(item) and not filling.unjudged(item, self._schedulers, {})

    @contextlib.contextmanager
    def _understood(self) -> Iterator[None]:
        """An error of the connection is one of the shadow; if its unit has ended, that is why."""
        try:
            yield
        except (ApiError, RemoteError) as error:
            self._unit.check()
            raise ShadowError(f"the shadow control plane does not answer: {error}") from error

    def fill(self) -> None:
        """Start and fill it. Raises ShadowError."""
        with self._understood():
            self._unit.wait_until(lambda: _answers(self._store.healthy), START_SECONDS, "etcd did not start")
            doing(f"fill the shadow control plane with {len(self._contents)} objects")
            self._store.fill(self._contents)
            self._unit.wait_until(lambda: _answers(self._store.ready), START_SECONDS, "kube-apiserver did not start")
            self._unit.schedule()
            changed: dict[str, Any] = {}
            self._seen({}, changed, SCHEDULER_SECONDS)
            self._restore(changed)

    def renew(self, objects: Mapping[str, Collection[Object]]) -> None:
        """From now on it holds a copy of these objects (KINDS_OF_SHADOW): the cluster has changed since. Raises ShadowError."""
        try:
            contents = filling.contents(objects)
        except ValueError as error:
            raise ShadowError(str(error)) from None
        changed = [key for key in {**self._contents, **contents} if contents.get(key) != self._contents.get(key)]
        # A pod that the shadow has placed may be on another node by now: a scheduler that sees it move takes its cache for corrupted.
        gone = [key for key in changed if key not in contents or key in self._waiting]
        self._hold(contents)
        with self._understood():
            self._store.write(dict.fromkeys(gone))
            self._store.write({key: contents[key] for key in changed if key in contents})

    def _restore(self, changed: Collection[str]) -> None:
        before = {key: self._contents.get(key) for key in (*changed, *self._waiting)}
        # The pods of the question are deleted before what has their room comes back.
        self._store.write(dict(sorted(before.items(), key=lambda one: one[1] is not None)))


@contextlib.contextmanager
def shadow_control_plane(nodes: Iterable[SurveyedNode], objects: Mapping[str, Collection[Object]]) -> Iterator[ShadowControlPlane]:
    """A shadow control plane on the first of `nodes` whose components can run it, with a copy of `objects` (KINDS_OF_SHADOW); gone at the
    end, also if this process is killed. Raises ShadowError."""
    node, own = own_components(nodes)
    host = node.remote.name
    try:
        contents = filling.contents(objects)
    except ValueError as error:
        raise ShadowError(str(error)) from None
    unit = Unit(node.remote, own, LIMIT + COPIES * filling.size_of(contents))
    doing(f"start a shadow control plane on {host}")
    try:
        yield _started(node, unit, contents)
    finally:
        doing("")
        unit.close()


def _started(node: SurveyedNode, unit: Unit, contents: Mapping[str, dict[str, Any]]) -> ShadowControlPlane:
    host, own, needed = node.remote.name, unit.own, unit.limit - LIMIT + LEAST
    try:
        found = unit.open()
        if found.memory << 10 < needed:
            raise ShadowError(
                f"{host}: a shadow control plane needs {needed >> 20} MiB of memory, and {found.memory >> 10} MiB are available"
            )
        schedulers = _schedulers(host, node, own, found.configuration, found.written)
        its_ports, credentials = ports(found.ports), new_credentials()
        made = programs(unit.folder, its_ports, credentials, own.api.process.argv, own.scheduler.process.argv, found.configuration)
        unit.start({**made.files, **{f"{name}.words": "".join(f"{one}\n" for one in words).encode() for name, words in made.words.items()}})
        transport = node.remote.transport
        if transport is None:
            raise ShadowError(f"{host}: there is no SSH connection to forward through")
        shadow = ShadowControlPlane(unit, Store(transport, host, its_ports, credentials), contents, schedulers)
        shadow.fill()
    except (RemoteError, ValueError, FormatError) as error:
        raise ShadowError(f"{host}: a shadow control plane could not be started: {error}") from error
    doing("")
    return shadow


def _schedulers(host: str, node: SurveyedNode, own: Own, configuration: bytes, written: int) -> Sequence[str]:
    """The names that the scheduler answers to. Raises ShadowError for a configuration that the shadow cannot use."""
    if not own.configuration:
        return filling.profiles_of({})
    where = f"{host}: {own.configuration}, the configuration of kube-scheduler,"
    try:
        if extenders(configuration):
            raise ShadowError(f"{where} has extenders, which a shadow must not ask: what they decide is not judged")
        if is_younger(written, node.seen.started_at(own.scheduler.process)):
            raise ShadowError(f"{where} was written after the process had started, so it is not what decides; restart kube-scheduler first")
        return filling.profiles_of(yaml_text.load(configuration))
    except FormatError as error:
        raise ShadowError(f"{where} cannot be read: {error}") from None


def _answers(ask: Callable[[], bool]) -> bool:
    """False as long as nothing listens."""
    try:
        return ask()
    except ApiError as error:
        if not error.passing:
            raise
        return False


def _name(move: Move) -> str:
    item = move.old if move.old is not None else move.new
    return full_name(item) if item is not None else ""


def _placed(move: Move, pod: Object | None) -> PlacedPod:
    if pod is None:
        return PlacedPod(_name(move), "pending", why="kube-scheduler deleted it")
    if node := node_of(pod):
        return PlacedPod(_name(move), "placed", node)
    return PlacedPod(_name(move), "pending", why=refused(pod) or "kube-scheduler did not judge it")


def mark(name: str, scheduler: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A node, a pod that is there, and a pod that goes there because of it. Nothing else tolerates the node, and it has no more room."""
    room, labels = {"cpu": "0", "memory": "0", "pods": "2"}, {_MARK: name}
    node = {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name, "labels": labels},
        "spec": {"taints": [{"key": _MARK, "effect": "NoSchedule"}]}, "status": {"allocatable": room, "capacity": room},
    }  # fmt: skip
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {"matchLabels": labels}, "topologyKey": _MARK}]}
    spec = {
        "schedulerName": scheduler, "priority": 2_000_001_000, "preemptionPolicy": "Never", "nodeSelector": labels,
        "tolerations": [{"key": _MARK, "operator": "Exists"}], "affinity": {"podAffinity": affinity},
        "containers": [{"name": "mark", "image": "none"}],
    }  # fmt: skip

    def pod(its: str, own_labels: Mapping[str, str], **more: Any) -> dict[str, Any]:
        meta = {"name": its, "uid": its, "namespace": "kube-system", "labels": own_labels}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**spec, **more}, "status": {"phase": "Pending"}}

    return node, pod(f"{name}-partner", labels, nodeName=name, affinity={}), pod(name, {})
