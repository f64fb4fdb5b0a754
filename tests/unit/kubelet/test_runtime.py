"""What a container runtime says of its cgroup driver: answers of containerd 1.6 and 1.7 as they came, and those that the CRI defines."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from roles.engine.kubelet import find, runtime
from roles.engine.kubelet.runtime import Runtime, parse
from tests.unit.kubelet.samples import RUNC, UNIMPLEMENTED, VERSION_17, coded, handlers
from tests.unit.node import node
from tests.unit.node.node import parse as observed

VERSION_16 = "version 0 AAAAACMKBTAuMS4wEgpjb250YWluZXJkGgoxLjYuMjB+ZHMxIgJ2MQ==="
NOTHING = '"options":null'
DEFAULT = '"defaultRuntime":{"runtimeType":"","runtimePath":"","runtimeRoot":"",' + NOTHING
KATA = '"kata":{"runtimeType":"io.containerd.kata.v2","PodAnnotations":["a"],"options":{"ConfigPath":"/etc/kata.toml"}'


def message(data: bytes) -> bytes:
    return b"\0" + len(data).to_bytes(4, "big") + data


def config(data: bytes, status: str = "0") -> str:
    return f"config {status} {coded(message(data))}"


def answer(*lines: str) -> Runtime:
    return parse(["daytwo 1", *lines, "end"])


def test_a_containerd_that_reports_no_driver_has_that_of_its_running_configuration() -> None:
    found = answer(VERSION_17, UNIMPLEMENTED, handlers(DEFAULT, RUNC))
    assert (found.name, found.reported, found.handlers, found.problem) == ("containerd 1.7.24~ds1", None, {"runc": "systemd"}, "")
    assert found.drivers == {"systemd"}
    assert answer(VERSION_16, UNIMPLEMENTED, handlers(RUNC.replace("true", "false"))).drivers == {"cgroupfs"}
    assert answer(VERSION_16, UNIMPLEMENTED, handlers(RUNC.replace('{"SystemdCgroup":true}', "null"))).drivers == {"cgroupfs"}


def test_handlers_that_do_not_start_runc_do_not_count() -> None:
    other = RUNC.replace('"runc"', '"nvidia"').replace("true", "false")
    assert answer(VERSION_17, UNIMPLEMENTED, handlers(RUNC, KATA)).drivers == {"systemd"}
    assert answer(VERSION_17, UNIMPLEMENTED, handlers(RUNC, KATA, other)).handlers == {"runc": "systemd", "nvidia": "cgroupfs"}
    assert answer(VERSION_17, UNIMPLEMENTED, handlers(KATA)).problem.startswith("it does not report its cgroup driver")


@pytest.mark.parametrize(
    ("data", "reported"),
    # RuntimeConfigResponse: linux {cgroup_driver}; the number 0, systemd, is not written.
    [(b"\x0a\x00", "systemd"), (b"\x0a\x02\x08\x00", "systemd"), (b"\x0a\x02\x08\x01", "cgroupfs"), (b"", None)],
)
def test_a_reported_driver_beats_the_handlers(data: bytes, reported: str | None) -> None:
    found = answer(VERSION_17, config(data), handlers(RUNC))
    assert found.reported == reported and found.problem == ""
    assert found.drivers == {reported or "systemd"}


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ((VERSION_17, "config - =", handlers(RUNC)), "gives no answer"),
        ((VERSION_17, "config 13 =", handlers(RUNC)), "answers RuntimeConfig with gRPC status 13"),
        ((VERSION_17, config(b"\x0a\x02\x08\x07"), handlers(RUNC)), "unknown cgroup driver 7"),
        ((VERSION_17, UNIMPLEMENTED, handlers()), "shows none in its status"),
        (("without curl",), "no curl"),
        (("without socket",), "no socket"),
        ((VERSION_17, config(b"\x0a\x05\x08"), handlers(RUNC)), "cannot be parsed"),
        ((VERSION_17, config(b"\x08\x80"), handlers(RUNC)), "cannot be parsed"),
        ((VERSION_17, config(b"\x08\x01"), handlers(RUNC)), "cannot be parsed"),
        ((VERSION_17, config(b"\x0f\x01"), handlers(RUNC)), "cannot be parsed"),
        ((VERSION_17, f"config 0 {coded(b'')}", handlers(RUNC)), "cannot be parsed"),
        ((VERSION_17, "config", handlers(RUNC)), "cannot be parsed"),
        ((VERSION_17,), "cannot be parsed"),
        (("processes kubepods x", VERSION_17), "cannot be parsed"),
    ],
)
def test_what_is_not_known_is_said(lines: tuple[str, ...], problem: str) -> None:
    found = answer(*lines).problem
    assert problem in found and bool(problem) == bool(found)


def test_an_answer_that_was_cut_short() -> None:
    assert parse(["daytwo 1", VERSION_17]).problem == parse([]).problem == "the node's answer was cut short"


def test_where_it_is_set_and_where_the_pods_are() -> None:
    containerd, crio = "14:        SystemdCgroup = true\n20:  SystemdCgroup=\x1b[0m", '3:cgroup_manager = "systemd"'
    found = answer(
        VERSION_17,
        UNIMPLEMENTED,
        handlers(RUNC),
        f"setting {coded('/etc/containerd/config.toml')} {coded(containerd)}",
        f"setting {coded('/etc/crio/crio.conf')} {coded(crio)}",
        "processes kubepods.slice 24",
        "processes kubepods 2",
    )
    assert found.places == (
        "/etc/containerd/config.toml:14: SystemdCgroup = true",
        "/etc/containerd/config.toml:20: SystemdCgroup=\\x1b[0m",
    )
    assert found.processes == {"systemd": 24, "cgroupfs": 2}


def test_when_it_started_is_known_to_the_tick_and_by_the_clock_since_boot() -> None:
    path = "/etc/containerd/config.toml"
    found = answer(VERSION_17, UNIMPLEMENTED, handlers(RUNC), f"unit {coded(path)} 1700000000 1000.5 5025 100")
    assert (found.unit, found.path, found.started) == ("containerd.service", path, 1699999049.75)


def test_the_socket_is_that_of_the_kubelet() -> None:
    kubelet = find(observed("n1", node.answer()))
    assert runtime.socket(kubelet, {"containerRuntimeEndpoint": "unix:///run/crio/crio.sock"}) == "/run/crio/crio.sock"
    flagged = replace(kubelet, process=replace(kubelet.process, argv=("kubelet", "--container-runtime-endpoint=/run/c.sock")))
    assert runtime.socket(flagged, {"containerRuntimeEndpoint": "unix:///run/crio/crio.sock"}) == "/run/c.sock"
    for other in ("", "tcp://127.0.0.1:1", "unix:///run/a\nb"):
        with pytest.raises(ValueError, match="not a Unix socket"):
            runtime.socket(kubelet, {"containerRuntimeEndpoint": other})


def test_the_question_changes_nothing_where_no_runtime_is() -> None:
    told = subprocess.run(["sh", "-s"], input=runtime.question("/nothing's/here"), text=True, capture_output=True, check=True)
    assert told.stderr == "" and "no socket" in parse(told.stdout.splitlines()).problem
