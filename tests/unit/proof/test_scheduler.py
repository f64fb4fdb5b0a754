"""The own configurations of schedulers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from roles.engine.api import NoApi
from roles.engine.proof import Cluster


class Asked(Cluster):
    def component_configuration(self, host: str, component: str) -> dict[str, Any] | None:
        if host == "cp2":
            raise NoApi("it is away")
        return {"of": f"{component} of {host}"}


def test_only_schedulers_with_a_configuration_of_their_own_are_asked() -> None:
    def runs(*argv: str) -> SimpleNamespace:
        return SimpleNamespace(components={"kube-scheduler": SimpleNamespace(process=SimpleNamespace(argv=("kube-scheduler", *argv)))})

    cluster, own = Asked(), "--config=/etc/kubernetes/own.yaml"
    nodes = {"cp1": runs(own), "cp2": runs("--v=2", own), "cp3": runs("--kubeconfig=/x"), "cp4": SimpleNamespace(components={})}
    cluster._nodes = cast("Any", nodes)
    assert cluster.own_scheduler_configurations() == {"cp1": {"of": "kube-scheduler of cp1"}, "cp2": None}
