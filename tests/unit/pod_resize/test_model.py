"""What an operator may write, and the message for each mistake."""

from __future__ import annotations

from typing import Any

import pytest

from roles.engine.transaction import Refusal
from roles.pod_resize import DesiredResources, model


def read(*hosts: dict[str, Any]) -> DesiredResources:
    return model.read_resize([(f"w{number}", values.get) for number, values in enumerate(hosts, 1)])


def test_what_is_given() -> None:
    found = read({}, {"deployment": "shop/web", "cpu": "300m", "memory": "600Mi", "max_in_flight": 3})
    assert (found.kind, found.place, found.path) == ("Deployment", ("shop", "web"), "/apis/apps/v1/namespaces/shop/deployments/web")
    assert (found.cpu, found.memory, found.max_in_flight, found.template) == ("300m", "600Mi", 3, "keep")


def test_values_from_the_command_line() -> None:
    found = read({"daemonset": "kube-system/agent", "cpu": 1, "memory_limit": "1Gi", "container": "a,b"})
    assert (found.cpu, found.container, found.kind) == ("1", ("a", "b"), "DaemonSet")
    assert read({"statefulset": "a/b", "cpu": 0.5}).cpu == "0.5"
    found = read({"selector": "shop/app=web,tier in (a,b)", "cpu": "1"})
    assert (found.kind, found.place) == (None, ("shop", "app=web,tier in (a,b)"))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "choose pods by one of workload"),
        ({"cpu": "1"}, "none is given"),
        ({"deployment": "a/b", "selector": "a/x=y", "cpu": "1"}, "deployment and selector are given"),
        ({"deployment": "a/b"}, "no amount is given"),
        ({"deployment": "web", "cpu": "1"}, "deployment: 'web' is not NAMESPACE/KIND/NAME"),
        ({"deployment": "Shop/web", "cpu": "1"}, "'Shop' is not a valid namespace"),
        ({"selector": "app=web", "cpu": "1"}, "'app=web' is not NAMESPACE/SELECTOR"),
        ({"selector": "shop/", "cpu": "1"}, "is not NAMESPACE/SELECTOR"),
        ({"deployment": "a/b", "cpu": "much"}, "cpu: 'much' is not a quantity"),
        ({"deployment": "a/b", "cpu": "0"}, "cannot be removed from a running pod"),
        ({"deployment": "a/b", "cpu": "-1"}, "cannot be removed from a running pod"),
        ({"deployment": "a/b", "memory_limit": "absent"}, "cannot be removed from a running pod, only changed"),
        ({"deployment": "a/b", "cpu": True}, "true is not a quantity"),
        ({"deployment": "a/b", "cpu": "1", "cpu_limit": "2"}, "cpu is the request and the limit; give it, or cpu_limit, not both"),
        ({"deployment": "a/b", "cpu_request": "2", "cpu_limit": "1"}, "cpu_request 2 is above cpu_limit 1"),
        ({"deployment": "a/b", "cpu": "1", "max_in_flight": "0"}, "max_in_flight: '0' is not a number of pods"),
        ({"deployment": "a/b", "cpu": "1", "max_in_flight": "10%"}, "is not a number of pods"),
        ({"deployment": "a/b", "cpu": "1", "template": "change"}, "template: change, but it must be 'keep' or 'update'"),
        ({"selector": "a/x=y", "cpu": "1", "template": "update"}, "a selector has no template"),
        ({"deployment": "a/b", "cpu": "1", "resize_timeout": 1}, "resize_timeout: 1, but it must be 5 or more"),
    ],
)
def test_what_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(Refusal) as caught:
        read(values)
    assert words in str(caught.value)


def test_hosts_have_the_same_values() -> None:
    with pytest.raises(Refusal, match=r"cpu differs between w1 \(1\) and w2 \(2\)"):
        read({"deployment": "a/b", "cpu": "1"}, {"cpu": "2"})
    assert read({"deployment": "a/b", "cpu": "1"}, {"cpu": "1"}).cpu == "1"


def test_the_check_reads_other_keys() -> None:
    assert model.read_cluster([("w1", {"image": "registry.local/app:1"}.get)], model.ProbeOptions)[1].image == "registry.local/app:1"
