"""What was read of the cluster is kept as long as it counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from roles.engine.api.metrics import GateMetric
from roles.engine.proof.cluster import Cluster, NoApi


def test_the_gates_of_the_last_read_are_those_that_were_proven() -> None:
    answers: list[Any] = [{"A": GateMetric("BETA", False)}, {"A": GateMetric("BETA", True)}, NoApi("away")]

    class Answering(Cluster):
        def _query(self, *_: Any) -> Any:
            if isinstance(answer := answers.pop(0), Exception):
                raise answer
            return SimpleNamespace(gates=answer)

    cluster = Answering()
    assert cluster.last_effective("w1", "kubelet") == {}
    for _ in range(2):
        assert cluster.effective("w1", "kubelet", "w1") == cluster.last_effective("w1", "kubelet")
    assert cluster.last_effective("w1", "kubelet")["A"].enabled and cluster.last_effective("w2", "kubelet") == {}
    with pytest.raises(NoApi):
        cluster.effective("w1", "kubelet", "w1")
    assert cluster.last_effective("w1", "kubelet") == {}, "what was read of the process before is nothing of the one after"
