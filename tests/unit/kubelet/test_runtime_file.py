"""The cgroup driver in containerd's configuration file: the value of a line changes, and nothing else."""

from __future__ import annotations

import pytest

from roles.engine.editing import FormatError
from roles.engine.kubelet.runtime_file import drivers, with_driver

V2 = b"""version = 2
# SystemdCgroup = false is the default
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\r
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    SystemdCgroup = true   # as kubeadm wants it
[plugins."io.containerd.grpc.v1.cri".registry.configs."r.example".auth]
  password = "SystemdCgroup = true"
"""
V3 = b"""version = 3
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]
runtime_type = 'io.containerd.runc.v2'
options = {BinaryName = "/usr/bin/nvidia-container-runtime", SystemdCgroup = false}
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata]
runtime_type = 'io.containerd.kata.v2'
"""


def test_only_the_value_changes_there_and_back() -> None:
    changed = with_driver(V2, "cgroupfs")
    assert changed == V2.replace(b"    SystemdCgroup = true ", b"    SystemdCgroup = false ")
    assert (drivers(V2), drivers(changed)) == ({"runc": "systemd"}, {"runc": "cgroupfs"})
    assert with_driver(changed, "systemd") == V2 and with_driver(V2, "systemd") == V2


def test_every_handler_that_starts_runc_changes() -> None:
    data = V3.replace(b'options = {BinaryName = "/usr/bin/nvidia-container-runtime", SystemdCgroup = false}\n',
                      b"[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]\nSystemdCgroup=false\n")  # fmt: skip
    assert with_driver(data, "systemd").count(b"= true") + with_driver(data, "systemd").count(b"=true") == 2
    assert drivers(with_driver(data, "systemd")) == {"runc": "systemd", "nvidia": "systemd"}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (V3, "not one for each handler"),
        (V2.replace(b"    SystemdCgroup = true   # as kubeadm wants it\n", b""), "handler runc have no line SystemdCgroup"),
        (V2.replace(b'"SystemdCgroup = true"', b'"""\nSystemdCgroup = true\n"""'), "not one for each handler"),
        (b'imports = ["/etc/mine.toml"]\n' + V2, "imports other files"),
        (V2 + b"= 3", "cannot be parsed as TOML"),
        (b"\xff", "cannot be parsed as TOML"),
        (b"plugins = 3\nSystemdCgroup = true\n", "not one for each handler"),
    ],
    ids=["inline-table", "no-line", "in-a-text", "imports", "no-toml", "no-text", "elsewhere"],
)
def test_what_is_more_than_a_value_is_left_to_the_operator(data: bytes, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        with_driver(data, "cgroupfs" if data.count(b"true") else "systemd")
