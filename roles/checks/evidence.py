"""The evidence of a node and of the cluster, read once, without any change; `judge` derives the verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from roles.engine import control_plane, kubelet, starting
from roles.engine.api import ApiFailure, GateMetric
from roles.engine.bridge import Remote
from roles.engine.control_plane import Component, ManifestFile, manifest_files
from roles.engine.editing import flags
from roles.engine.findings import Finding
from roles.engine.kubelet import Kubelet
from roles.engine.node import FilesWanted, Observation, ObservationError, look, unreadable
from roles.engine.node_lint import lint
from roles.engine.proof import Cluster, refuse_claim
from roles.engine.remote import RemoteError
from roles.engine.scripts import decoded_text, filled
from roles.engine.starting import Obstacle
from roles.engine.timeouts import patient
from roles.engine.transaction import Refusal

KUBELET = "kubelet"
# A kubelet that cannot run ends within seconds of its start, and systemd starts the next one 10 s later (RestartSec in the
# packaged unit): a kubelet of this age is stable.
STABLE_SECONDS = 30
LEAST_WATCH_SECONDS = 2
ASK_SECONDS = 120
# The name in all packages, used if the unit cannot be found by its process.
_UNIT = "kubelet.service"


@dataclass(frozen=True)
class Moment:
    """The kubelet's unit at one moment (`systemctl show`). `uptime` in seconds since boot, `start_ticks` of its main process (0: none)."""

    uptime: float
    start_ticks: int
    properties: Mapping[str, str]

    @property
    def identity(self) -> tuple[str, int, str]:
        return self.properties.get("MainPID", ""), self.start_ticks, self.properties.get("NRestarts", "")


@dataclass(frozen=True)
class Health:
    """The answer of a health endpoint: HTTP status (000: none), and its text."""

    status: str
    said: str


@dataclass(frozen=True)
class Evidence:
    """One node. A text says why something could not be read: `why_not` for the whole node, `refused` for its kubelet's files, `claim` for a
    control plane that nobody believes, and a text instead of an answer of the API. `unclear`: why the manifest of a component is not, by
    its name; `obstacles`: what stands in the way of the next start, and of new pods (None: it is not known)."""

    host: str
    why_not: str = ""
    seen: Observation | None = None
    kubelet: Kubelet | None = None
    refused: str = ""
    components: Mapping[str, Component] = field(default_factory=dict)
    unclear: Mapping[str, Refusal] = field(default_factory=dict)
    claim: str = ""
    moments: tuple[Moment, ...] = ()
    health: Mapping[str, Health] = field(default_factory=dict)
    effective: Mapping[str, Mapping[str, GateMetric] | str] = field(default_factory=dict)
    obstacles: tuple[Obstacle, ...] | None = None
    configuration: Mapping[str, Any] | str = ""
    node: Mapping[str, Any] | str = ""

    @cached_property
    def manifests(self) -> tuple[ManifestFile, ...]:
        """All of the manifests directory."""
        return tuple(manifest_files(self.kubelet)) if self.kubelet else ()

    @cached_property
    def wrong(self) -> list[Finding]:
        """What is wrong on the node, whatever the inventory wants."""
        assert self.seen is not None  # a node that was not read has no check
        gates = self.effective.get(KUBELET)
        return lint(self.seen, self.kubelet, self.components, self.unclear, self.manifests, self.configuration, gates)

    @property
    def own_kubelet(self) -> Kubelet:
        """Where a check needs one that passes only with it."""
        assert self.kubelet is not None
        return self.kubelet

    @property
    def unit_name(self) -> str:
        return self.seen.unit.name if self.seen and self.seen.unit else _UNIT

    @property
    def running(self) -> bool:
        """A kubelet runs as the main process of a systemd unit."""
        return self.seen is not None and self.seen.unit is not None and self.seen.kubelet is not None

    @property
    def restarting(self) -> str:
        """Why the kubelet is not stable: "" if it is."""
        last = self.moments[-1].properties if self.moments else {}
        if last.get("SubState") == "auto-restart":
            return f"it ended ({last.get('Result', '?')}) and systemd starts it again: {last.get('NRestarts', '?')} restarts"
        identities = list(dict.fromkeys(moment.identity for moment in self.moments))
        if self.running and self.seen is not None and self.seen.kubelet is not None and identities:
            process = self.seen.kubelet
            identities = list(dict.fromkeys([(str(process.pid), process.start_ticks, identities[0][2]), *identities]))
        if len(identities) > 1:
            (old, _, before), (new, _, now) = identities[0], identities[-1]
            new = new if new not in ("", "0") else "none"
            return f"its PID changed from {old} to {new} during the check, its restarts from {before} to {now}"
        return ""

    @property
    def healthy(self) -> bool:
        """The kubelet is stable and reports that it is healthy: only then the API is asked about it."""
        return self.kubelet is not None and not self.restarting and self.health.get(KUBELET, Health("", "")).status == "200"


def of_node(remote: Remote, wanted: FilesWanted = kubelet.wanted) -> Evidence:
    """What the node itself shows. Watches the kubelet long enough to see whether it is stable. `wanted`: the files to read."""
    try:
        seen = look(remote, wanted)
        found = _unclaimed(remote, of_observation(seen))
        if found.why_not:
            return found
        return replace(found, **_watched(remote, found))
    except (ObservationError, RemoteError) as error:
        return Evidence(remote.name, why_not=str(error).removeprefix(f"{remote.name}: "))


def _unclaimed(remote: Remote, found: Evidence) -> Evidence:
    """The same; but a host that runs a control plane that the inventory does not give it has none that could pass."""
    try:
        refuse_claim(remote, found.components)
    except Refusal as refusal:
        return replace(found, claim=refusal.text)
    return found


def of_observation(seen: Observation) -> Evidence:
    """Pure: the kubelet and the control plane of a node, as far as they can be read."""
    if seen.uid != 0:
        return Evidence(
            seen.host, why_not=f"daytwo needs root on the node and runs as uid {seen.uid}; set _sudo = True in the inventory's data"
        )
    made = Evidence(seen.host, seen=seen)
    if not made.running:
        return made
    assert seen.unit is not None  # it runs
    # A missing daemon-reload has its own check and must not hide others.
    settled = replace(seen, unit=replace(seen.unit, properties={**seen.unit.properties, "NeedDaemonReload": ["no"]}))
    try:
        made = replace(made, kubelet=kubelet.find(settled))
    except Refusal as refusal:
        return replace(made, refused=refusal.text)
    assert made.kubelet is not None
    control = control_plane.look(made.kubelet)
    return replace(made, components=control.components, unclear=control.refusals)


def with_versions(found: Evidence, seen: Observation) -> Evidence:
    """The same, after a new observation of the node."""
    made = of_observation(seen)
    return replace(found, seen=made.seen, kubelet=made.kubelet, components=made.components)


def _watched(remote: Remote, found: Evidence) -> dict[str, Any]:
    """The moments and the health of a node, and what stands in the way of the next start. Raises ObservationError, RemoteError."""
    assert found.seen is not None
    endpoints = [(KUBELET, found.kubelet.health_url, "", "")] if found.kubelet else []
    for name, component in found.components.items():
        argv = component.process.argv
        # If anonymous requests are refused, the API server's own client certificate can ask: /readyz is open to all authenticated users.
        certificate, key = (flags.last_flag(argv, f"kubelet-client-{part}") or "" for part in ("certificate", "key"))
        endpoints.append((name, f"{component.health_url}?verbose", certificate, key))
    script = filled("checks.sh.j2", unit=found.unit_name, seconds=_watch(found.seen), endpoints=endpoints)
    needs = starting.node_needs(found.kubelet, found.components.values()) if found.kubelet else None
    # In one command: each asks a node for seconds.
    asked = (starting.question(needs) if needs else "") + script
    answer = remote.run(asked, timeout=patient(ASK_SECONDS))
    moments, health = parse(remote.name, answer.stdout)
    facts = starting.answer(needs, answer.stdout) if needs else None
    obstacles = tuple(starting.judge(remote.name, needs, facts)) if needs and facts and facts.complete else None
    return {"moments": moments, "health": health, "obstacles": obstacles}


def _watch(seen: Observation) -> int:
    """Seconds to watch the kubelet until it has the age of a stable one."""
    if seen.kubelet is None:
        return LEAST_WATCH_SECONDS
    age = seen.uptime - seen.kubelet.start_ticks / seen.ticks_per_second
    return max(LEAST_WATCH_SECONDS, math.ceil(STABLE_SECONDS - age))


def parse(host: str, lines: Iterable[str]) -> tuple[tuple[Moment, ...], dict[str, Health]]:
    """Read the records that templates/checks.sh.j2 writes. Raises ObservationError if they are incomplete or invalid."""
    moments: list[Moment] = []
    health: dict[str, Health] = {}
    whole = False
    for number, line in enumerate(lines, 1):
        kind, *fields = line.split(" ")
        try:
            if kind == "moment":
                uptime, start, properties = fields
                pairs = (pair.partition("=") for pair in decoded_text(properties).splitlines())
                moments.append(Moment(float(uptime), int(start), {key: value for key, _, value in pairs}))
            elif kind == "health":
                name, status, said = fields
                health[name] = Health(status[-3:], " ".join(decoded_text(said).split()))
            elif kind == "end":
                whole = True
        except ValueError as error:
            raise unreadable(host, number, line) from error
    if not whole or not moments:
        raise ObservationError(f"{host}: the node's answer is incomplete; try again")
    return tuple(moments), health


def with_api(found: Evidence, cluster: Cluster, no_api: str) -> Evidence:
    """The evidence with what the API reports about the node; `no_api`: why no API can be asked."""
    if found.kubelet is None:
        return found
    name = found.kubelet.node_name
    why_not = {KUBELET: "" if found.healthy else "its kubelet is not healthy, so it was not asked"}
    for component in found.components:
        health = found.health.get(component)
        why_not[component] = "" if health is not None and health.status == "200" else "it is not healthy, so it was not asked"

    def ask(component: str, question: Callable[[], Any]) -> Any:
        if because := no_api or why_not[component]:
            return because
        try:
            return question()
        except (ApiFailure, RemoteError) as error:
            return str(error)

    return replace(
        found,
        effective={one: ask(one, partial(cluster.effective, found.host, one, name)) for one in why_not},
        configuration=ask(KUBELET, partial(cluster.configuration, name)),
        node=ask(KUBELET, partial(cluster.node, name)),
    )
