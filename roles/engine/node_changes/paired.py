"""The settings that a run changes, and those elsewhere that they must fit: read once for the run, judged for the state after it."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from roles.engine import folding, pairs
from roles.engine.api import ApiFailure
from roles.engine.bridge import Fleet, Remote, at_once
from roles.engine.certificates import CertificateError, Material, parse_own
from roles.engine.control_plane import Component, own_etcd
from roles.engine.findings import Severity
from roles.engine.kubelet import Kubelet
from roles.engine.node.named_files import read_trust
from roles.engine.node.virtual import virtual_mark
from roles.engine.node_changes.node_plan import KUBELET, ComponentPlan, NodePlan
from roles.engine.pairs import Handshake, Mismatch, Pair, Picture
from roles.engine.proof import Cluster, Survey
from roles.engine.proof.presented import ADDRESSES, Presented, presented
from roles.engine.remote import RemoteError
from roles.engine.transaction import Refusal

_Files = dict[tuple[str, str], Material]
N = TypeVar("N", bound=NodePlan[Any])
#: The key of the consent (roles/engine/runs/options.py).
CONSENT = "allow_pairs"
_TRUSTS, _TYPES = "kubelet-certificate-authority", "kubelet-preferred-address-types"


@dataclass(frozen=True)
class Reading:
    """The cluster's picture with what was read of it, and why the rest is not known."""

    picture: Picture
    problems: tuple[str, ...] = ()


@dataclass
class _Reader:
    """Reads what some pairs need, once."""

    fleet: Fleet
    cluster: Cluster
    remotes: Mapping[str, Remote]
    problems: list[str] = field(default_factory=list)

    def objects(self, paths: Collection[str]) -> dict[str, Any]:
        return {path: found for path in sorted(paths) if (found := self._tried(lambda: self.cluster.object(path))) is not None}  # noqa: B023

    def nodes(self) -> Mapping[str, Mapping[str, Any]] | None:
        """Those with a kubelet."""
        found: Mapping[str, Mapping[str, Any]] | None = self._tried(self.cluster.known_nodes)
        return found if found is None else {name: one for name, one in found.items() if virtual_mark(one) is None}

    def files(self, files: Iterable[tuple[str, str]], kubeconfigs: Iterable[tuple[str, str]] = ()) -> tuple[_Files, _Files]:
        """What files hold, and whom kubeconfigs trust."""
        named, trusting = _by_host(files), _by_host(kubeconfigs)
        remotes = [remote for host, remote in self.remotes.items() if host in named or host in trusting]
        found: _Files = {}
        trusted: _Files = {}
        asked = partial(self.fleet.each, remotes, doing="read the certificates of")
        for host, answer in asked(lambda remote: read_trust(remote, named.get(remote.name, ()), trusting.get(remote.name, ()))).items():
            if isinstance(answer, RemoteError):
                self.problems.append(str(answer))
            elif isinstance(answer, Exception):
                raise answer
            else:
                found |= {(host, path): one for path, one in answer[0].items()}
                trusted |= {(host, path): one for path, one in answer[1].items()}
        return found, trusted

    def handshakes(self, picture: Picture) -> dict[tuple[str, str], Handshake]:
        """What each kubelet serves, by the CA of each API server that demands one."""
        found: dict[tuple[str, str], Handshake] = {}
        for server in picture.of("kube-apiserver"):
            path = server.flags.get(_TRUSTS, ("",))[-1]
            material = picture.materials.get((server.host, server.on_node(path)))
            if material is None or any(known == path for _, known in found):
                continue
            if not material.certificates:
                self.problems.append(f"{path} of {server.host}: {material.unread}")
                continue
            authority = "".join(ssl.DER_cert_to_PEM_cert(one.der) for one in material.certificates)
            kinds = tuple(",".join(server.flags.get(_TYPES, ())).split(",")) if _TYPES in server.flags else ADDRESSES
            nodes = list((picture.nodes or {}).items())
            for (name, _), shown in zip(
                nodes, at_once(partial(presented, self.cluster, one, authority, kinds) for _, one in nodes), strict=True
            ):
                if isinstance(shown, Presented) and shown.certificate is not None:
                    found[name, path] = Handshake(shown.where, shown.problem)
                else:
                    why = f"{shown.where} presents no certificate: {shown.problem}" if isinstance(shown, Presented) else shown
                    self.problems.append(f"{name}: {why}")
        return found

    def _tried(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except (ApiFailure, RemoteError) as error:
            self.problems.append(str(error))
            return None


def _by_host(files: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for host, path in sorted(files):
        found.setdefault(host, []).append(path)
    return found


def read_picture(fleet: Fleet, cluster: Cluster, remotes: Mapping[str, Remote], rows: Sequence[Pair], picture: Picture) -> Reading:
    """What the pairs `rows` need besides flags and fields: objects, files, and handshakes with kubelets."""
    reader = _Reader(fleet, cluster, remotes)
    sides = [side for pair in rows for side in (pair.here, pair.there)]
    wanted = {path for side in sides for path in side.reads}
    live = any(side.live for side in sides)
    nodes = reader.nodes() if "nodes" in wanted else None
    objects = reader.objects(wanted - {"nodes"})
    files = pairs.files_of(picture, sides)
    if live:
        files |= {(one.host, one.on_node(one.flags[_TRUSTS][-1])) for one in picture.of("kube-apiserver") if _TRUSTS in one.flags}
    read, trusted = reader.files(files - {*picture.materials}, pairs.kubeconfigs_of(picture, sides))
    made = replace(picture, nodes=nodes, objects=objects, materials={**read, **picture.materials}, authorities=trusted)
    if live:
        made = replace(made, handshakes=reader.handshakes(made))
    return Reading(made, tuple(dict.fromkeys(reader.problems)))


# ---- the state before and after


def picture_of(found: Survey, plans: Iterable[NodePlan[Any]] = ()) -> Picture:
    """The flags and fields of all observed nodes, as they run; of a kubelet whose /configz was read for a plan, that."""
    running = {plan.host: one.state.configuration for plan in plans for one in plan.planned if one.state is not None}
    return Picture(
        tuple(one for host, node in found.observed.items() for one in servers(host, node.kubelet, node.components)),
        tuple(pairs.kubelet_side(node.kubelet, pairs.FIELDS, running.get(host)) for host, node in found.observed.items()),
    )


def servers(host: str, kubelet: Kubelet, components: Mapping[str, Component]) -> list[pairs.Server]:
    """What serves on a control-plane node, with its etcd."""
    return [
        *map(pairs.server, components.values()),
        *(pairs.etcd(host, etcd.argv if (etcd := own_etcd(kubelet)) else ()) if components else ()),
    ]


def after(picture: Picture, plans: Iterable[NodePlan[Any]]) -> Picture:
    """The same after the changes of these plans, with the files that they write."""
    materials = dict(picture.materials)
    for plan in plans:
        for one in plan.changing:
            if one.component == KUBELET:
                picture = picture.with_settings(plan.host, one.settings)
            else:
                picture = picture.with_flags(plan.host, one.component, one.flags, *_manifest(plan, one))
                materials |= dict(_written(plan.host, one))
    return replace(picture, materials=materials)


def _manifest(plan: NodePlan[Any], one: ComponentPlan) -> tuple[bytes, str]:
    """The new one, and the container in it."""
    assert one.change is not None
    return one.change.files[-1].after or b"", plan.components[one.component].container


def _written(host: str, one: ComponentPlan) -> Iterator[tuple[tuple[str, str], Material]]:
    for edit in one.change.files[:-1] if one.change else ():
        try:
            yield (host, edit.path), parse_own(edit.path, edit.after or b"")
        except CertificateError:
            continue  # the component's own binary says what is wrong with it


def judge(
    fleet: Fleet, found: Survey, plans: Sequence[N], allowed: Collection[str] | None, *, undoes: bool = False
) -> tuple[list[N], list[Refusal]]:
    """The plans with their warnings about pairs that the run touches and that do not fit after it, and the refusals; of those too whose
    files do not fit now, and which a restart reads again. `allowed`: the pairs for which there is consent; `undoes`: the run brings back
    what was there, and is only warned."""
    known = {pair.name for pair in pairs.PAIRS}
    if unknown := [name for name in allowed or () if name not in known]:
        return list(plans), [
            Refusal(plans[0].host if plans else "all", f"{CONSENT}={unknown[0]}: no pair has that name", "docs/reference/pairs.md has all")
        ]
    restarted = {(plan.host, one.component) for plan in plans for one in plan.changing}
    before = picture_of(found, plans)
    then = after(before, plans)
    concerned = pairs.concerned(before, then)
    again = [one for one in pairs.read_again({component for _, component in restarted}) if one not in concerned]
    rows = [*concerned, *again]
    if not rows:
        return list(plans), []
    remotes = {host: node.remote for host, node in found.observed.items()}
    # The files that only the new flags name are read too.
    reading = read_picture(fleet, found.reading, remotes, rows, then if concerned else _of_restarts(then, restarted))
    then = reading.picture
    before = replace(
        before,
        nodes=then.nodes,
        objects=then.objects,
        handshakes=then.handshakes,
        authorities=then.authorities,
        materials=_before(then, after(before, plans)),
    )
    missing = pairs.files_of(before, [side for pair in concerned for side in (pair.here, pair.there)]) - {*before.materials}
    before = replace(before, materials={**before.materials, **_Reader(fleet, found.reading, remotes).files(missing)[0]})
    judged = [*pairs.changed(before, then, concerned), *_of(restarted, pairs.mismatches(then, again))]
    wrong = [one for one in judged if one.is_known]
    refused = [one for one in wrong if one.pair.severity is Severity.critical and one.pair.name not in (allowed or ()) and not undoes]
    warned = [one for one in wrong if one not in refused]
    notes = [f"what must fit a setting of this run elsewhere could not be read: {problem}" for problem in reading.problems]
    unproven = [one for one in judged if not one.is_known]
    return [_unproven(_warned(plan, warned, notes), unproven) for plan in plans], [
        refusal(one, by_restart=one.pair in again) for one in refused
    ]


def unfit_at_start(fleet: Fleet, found: Survey, restarted: Collection[tuple[str, str]]) -> tuple[list[Mismatch], list[str]]:
    """The pairs of files that these components, by host, read when they start, and that do not fit; and what could not be read."""
    rows = pairs.read_again({component for _, component in restarted})
    remotes = {host: node.remote for host, node in found.observed.items()}
    reading = read_picture(fleet, found.reading, remotes, rows, _of_restarts(picture_of(found), restarted))
    return list(_of(restarted, pairs.mismatches(reading.picture, rows))), list(reading.problems)


def _of_restarts(picture: Picture, restarted: Collection[tuple[str, str]]) -> Picture:
    """Without the kubelets that run on, if nothing else restarts: their files are not asked for."""
    if any(component != KUBELET for _, component in restarted):
        return picture
    return replace(picture, kubelets=tuple(one for one in picture.kubelets if (one.host, KUBELET) in restarted))


def _of(restarted: Collection[tuple[str, str]], found: Iterable[Mismatch]) -> Iterator[Mismatch]:
    """The known mismatches of files that these components, by host, read again."""
    for one in found:
        sides = ((one.pair.here.owner, one.here), (one.pair.there.owner, one.there))
        if one.is_known and any((host, owner) in restarted for owner, hosts in sides for host in hosts):
            yield one


def _before(then: Picture, written: Picture) -> dict[tuple[str, str], Material]:
    """The materials without those that the run writes."""
    return {place: one for place, one in then.materials.items() if place not in written.materials}


def _warned(plan: N, wrong: Iterable[Mismatch], notes: Sequence[str]) -> N:
    found = [*notes] if plan.changing else []
    for one in wrong:
        if plan.host in one.here or plan.host in one.there:
            own = replace(one, here=(plan.host,), there=(plan.host,)) if one.pair.own else one
            found.append(warning(own, plan.host))
    return replace(plan, warnings=(*plan.warnings, *found)) if found else plan


def _unproven(plan: N, unproven: Iterable[Mismatch]) -> N:
    """The plan, which says so in advance; and so does its proof."""
    own = [one for one in unproven if plan.host in one.here or plan.host in one.there]
    if not own or not plan.changing:
        return plan

    def owed(component: str) -> tuple[str, ...]:
        return tuple(pairs.sentence(one, plan.host) for one in own if component in (one.pair.here.owner, one.pair.there.owner))

    planned = tuple(replace(one, unproven=owed(one.component)) for one in plan.planned)
    return replace(plan, planned=planned, warnings=(*plan.warnings, *(pairs.sentence(one, plan.host) for one in own)))


def warning(one: Mismatch, host: str = "") -> str:
    return f"{pairs.sentence(one, host)}; {one.pair.way_out}"


def refusal(one: Mismatch, *, by_restart: bool = False) -> Refusal:
    """With the rule, its source, and how to accept it all the same. `by_restart`: nothing in the run sets it."""
    places = one.here if one.pair.here.owner != "cluster" else one.there
    return Refusal(
        folding.hosts(list(places)),
        f"{'its restart reads these files again: ' if by_restart else ''}{pairs.sentence(one)} ({one.pair.source})",
        f"{one.pair.way_out}; to accept it, add --data {CONSENT}={one.pair.name}",
    )


def own_warnings(host: str, side: pairs.KubeletSide, node: Mapping[str, Any], changes: Mapping[str, Any]) -> list[str]:
    """Warnings about what a change of one kubelet's fields must fit on its own node. Pure."""
    before = Picture(kubelets=(side,), nodes={side.name: node})
    wrong = pairs.changed(before, before.with_settings(host, changes), [pair for pair in pairs.PAIRS if pair.own])
    return [warning(one, host) for one in wrong if one.pair.severity is not Severity.critical]
