"""The API of the lab's first control plane, through both ways. Reads only."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime

import paramiko
import pytest

from roles.engine.api import Api, Forbidden, KubectlApi, NotFound, RunCommand
from roles.engine.api.kubeconfig import parse_kubeconfig
from roles.engine.api.kubectl import ADMIN_CONF
from roles.engine.api.nodes import component_metrics, kubelet_config, kubelet_metrics, node_lease, node_pods
from roles.engine.tunnels import TunnelApi
from tests.lab import Lab

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def ssh(lab: Lab) -> Iterator[paramiko.SSHClient]:
    where = paramiko.SSHConfig.from_path(str(lab.ssh_config)).lookup("cp1")
    client = paramiko.SSHClient()
    client.load_host_keys(where["userknownhostsfile"])
    patient = {"timeout": 60, "banner_timeout": 120, "auth_timeout": 120}
    client.connect(
        where["hostname"], username=where["user"], key_filename=where["identityfile"], look_for_keys=False, allow_agent=False, **patient
    )
    yield client
    client.close()


@pytest.fixture(scope="module", params=["tunnel", "kubectl"])
def api(request: pytest.FixtureRequest, lab: Lab, ssh: paramiko.SSHClient) -> Api:
    if request.param == "kubectl":
        return KubectlApi(_runner(ssh), ("127.0.0.1", 6443), "cp1")
    data = lab.run("cp1", f"cat {shlex.quote(ADMIN_CONF)}").stdout.encode()
    transport = ssh.get_transport()
    assert transport is not None
    made = TunnelApi(transport, parse_kubeconfig(data), ("127.0.0.1", 6443), "cp1")
    made.probe()
    return made


def _runner(ssh: paramiko.SSHClient) -> RunCommand:
    def run(command: str) -> tuple[bool, str, str]:
        _, out, err = ssh.exec_command(command)
        text, errors = out.read().decode(), err.read().decode()
        return out.channel.recv_exit_status() == 0, text, errors

    return run


def test_ready(api: Api) -> None:
    assert api.get_raw("/readyz").strip() == b"ok"


def test_the_apiserver_and_every_kubelet_tell_their_gates(api: Api, lab: Lab) -> None:
    found = [component_metrics(api), *(kubelet_metrics(api, node) for node in lab.nodes)]
    for metrics in found:
        assert len(metrics.gates) > 100
        assert metrics.version == f"v{lab.version.lstrip('v')}"
        assert metrics.started is not None and 0 < metrics.started < datetime.now(UTC).timestamp()


def test_kubelets(api: Api, lab: Lab) -> None:
    for node in lab.nodes:
        assert kubelet_config(api, node)["kind"] == "KubeletConfiguration"
        lease = node_lease(api, node)
        assert lease.holder == node and lease.renewed is not None
        assert abs((datetime.now(UTC) - lease.renewed).total_seconds()) < 60


def test_static_pods_show_their_hash(api: Api) -> None:
    pods = {pod.name: pod for pod in node_pods(api, "cp1")}
    apiserver = pods["kube-apiserver-cp1"]
    assert apiserver.mirror and apiserver.config_hash and apiserver.containers[0].running_since


def test_not_found(api: Api) -> None:
    with pytest.raises(NotFound):
        node_lease(api, "nope")


def test_a_kubelets_identity_may_not(ssh: paramiko.SSHClient) -> None:
    api = KubectlApi(_runner(ssh), ("127.0.0.1", 6443), "cp1", "/etc/kubernetes/kubelet.conf")
    with pytest.raises(Forbidden):
        component_metrics(api)
