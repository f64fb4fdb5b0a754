"""The metrics API on the older minor, which metrics-server is not made for: refused, with consent applied and proven; and a vertical
autoscaler of a mode that only later minors have."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.integration import metrics_server, vertical_programs
from tests.integration import vertical_workloads as vertical
from tests.integration.operator import wait_for
from tests.lab import Lab

pytestmark = [pytest.mark.lab, pytest.mark.older, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def as_found(lab: Lab, older: None) -> Iterator[None]:
    lab.connect_pods()
    assert lab.load_extra("metrics-server") == metrics_server.IMAGE
    yield
    lab.kubectl("delete", "apiservice", metrics_server.API, "--ignore-not-found")
    lab.reset()


def test_a_newer_metrics_server_works_with_consent(lab: Lab) -> None:
    metrics_server.prepare()
    refused = metrics_server.serve("-y")
    why = r"metrics-server 0.9 is made for Kubernetes 1.34 and later, and this is 1.32, where it was seen to work all the same; use 0.8.x"
    assert refused.code == 1 and re.search(why, refused.err) and "allow_unsupported=true" in refused.err, refused.all
    assert "kubelets of" not in refused.err and "enable-aggregator-routing" not in refused.err, refused.err
    done = metrics_server.serve("-y", allow_unsupported="true")
    assert done.code == 0 and "WARNING metrics-server 0.9 is made for Kubernetes 1.34 and later, and this is 1.32" in done.out, done.all
    assert re.search(r"APIService v1beta1.metrics.k8s.io\s+create\s+done .*3 of 3 Ready nodes", done.out), done.out
    assert metrics_server.listed(lab) == {"cp1", "w1", "w2"}
    metrics_server.undo(done)


def test_a_mode_of_later_minors_is_refused(lab: Lab) -> None:
    vertical_programs.install_kinds(lab)
    lab.kubectl("create", "namespace", vertical.NAMESPACE)
    wait_for(lambda: lab.kubectl("get", "serviceaccount", "default", "-n", vertical.NAMESPACE, check=False), "the service account")
    vertical.apply(lab, vertical.deployment("db"))
    found = vertical.vertical("--dry", db=vertical.IN_PLACE)
    assert found.code == 1 and "no-in-place: mode InPlaceOrRecreate needs Kubernetes 1.33 or later, and this is 1.32" in found.all, (
        found.all
    )
