"""Where versions come from: the API, and only where it does not tell, the node's own binaries."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from roles.engine import control_plane, kubelet
from roles.engine.api import NoApi
from roles.engine.bridge import Remote
from roles.engine.node import Observation
from roles.engine.node.parse import parse
from roles.engine.proof import ObservedNode
from roles.engine.proof.versions import of_kubelet, with_versions
from roles.engine.remote import Answer
from tests.unit.node import node

COMPONENTS = {name: (name,) for name in control_plane.COMPONENTS}
MANIFESTS = {f"{name}.yaml": node.manifest(name) for name in COMPONENTS}
# The kubelet of the answer starts 950.5 s before this.
NOW = 1700000000


def seen() -> Observation:
    lines = node.answer(manifests=MANIFESTS, components=COMPONENTS)
    return parse("n1", [line for line in lines if not line.startswith("version ")])


def node_object(version: str, beat: float = NOW) -> dict[str, Any]:
    at = datetime.fromtimestamp(beat, UTC).isoformat().replace("+00:00", "Z")
    return {"status": {"nodeInfo": {"kubeletVersion": version}, "conditions": [{"type": "Ready", "lastHeartbeatTime": at}]}}


@dataclass
class Api:
    told: Mapping[str, str] = field(default_factory=dict)
    objects: Mapping[str, dict[str, Any]] | None = None

    def nodes(self) -> dict[str, dict[str, Any]]:
        if self.objects is None:
            raise NoApi("nobody answers")
        return dict(self.objects)

    def component_version(self, host: str, component: str) -> str | None:
        if component not in self.told:
            raise NoApi("nobody answers")
        return self.told[component]


@dataclass
class Host:
    """A node that can be asked; `scripts` are what it was."""

    answers: Sequence[str] = ()
    name: str = "n1"
    scripts: list[str] = field(default_factory=list)

    def run(self, script: str, *, timeout: float) -> Answer:
        self.scripts.append(script)
        return Answer(0, list(self.answers), [])


def told(pid: int, text: str) -> str:
    return f"version {pid} {base64.b64encode(text.encode()).decode()}="


def versions(api: Api, host: Host) -> dict[str, str | None]:
    look = seen()
    found = kubelet.find(look)
    one = ObservedNode(cast(Remote, host), look, found, control_plane.find(found))

    def each(remotes: Sequence[Remote], work: Callable[[Remote], Any]) -> dict[str, Any]:
        return {remote.name: work(remote) for remote in remotes}

    return {process.name: process.version for process in with_versions(api, [one], each)["n1"].processes}


def test_what_the_api_tells_is_not_asked_for_on_the_node() -> None:
    host = Host()
    api = Api(dict.fromkeys(COMPONENTS, "v1.36.2"), {"node": node_object("v1.36.3")})
    assert versions(api, host) == {
        "kubelet": "v1.36.3",
        "kube-apiserver": "v1.36.2",
        "kube-controller": "v1.36.2",
        "kube-scheduler": "v1.36.2",
    }
    assert host.scripts == []


def test_only_what_the_api_does_not_tell_is_asked_for() -> None:
    host = Host([told(202, "Kubernetes v1.35.1+rke2-x")])
    api = Api({"kube-apiserver": "v1.36.2", "kube-controller-manager": "v1.36.2"}, {"node": node_object("v1.36.3")})
    assert versions(api, host)["kube-scheduler"] == "v1.35.1+rke2-x"
    (script,) = host.scripts
    assert script.count("--version; version") == 1 and "inside kube-scheduler 202 6000 kube-system_kube-scheduler-node --version" in script


def test_without_an_api_all_are_asked_and_one_that_says_something_else_stays_unknown() -> None:
    host = Host([told(100, "Kubernetes v1.36.3"), told(200, "\x1b]52;c;eA==\x07"), told(201, "Kubernetes v1.36.3; rm"), "version 202 ="])
    assert versions(Api(), host) == {"kubelet": "v1.36.3", "kube-apiserver": None, "kube-controller": None, "kube-scheduler": None}
    assert host.scripts[0].count("--version; version") == 4


@pytest.mark.parametrize(
    ("found", "version"),
    [
        (node_object("v1.36.3"), "v1.36.3"),
        # The last word of the kubelet that ran before, perhaps of another version.
        (node_object("v1.36.3", NOW - 951), None),
        (node_object("v1.36.3\x1b[2J"), None),
        (node_object(""), None),
        ({}, None),
        ({"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": None}]}}, None),
    ],
)
def test_the_api_counts_where_the_running_kubelet_wrote_it(found: dict[str, Any], version: str | None) -> None:
    look = seen()
    assert look.kubelet is not None
    assert of_kubelet(look, look.kubelet, found) == version
