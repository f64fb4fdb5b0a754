"""One look at a node: read back whole, or said to be cut short."""

from __future__ import annotations

import pytest

from roles import kubelet
from roles.change.refusal import Refusal
from roles.observe import ObservationError, parse
from tests.unit.observe import node


def test_a_node_is_read_back() -> None:
    seen = parse("n1", node.answer(manifests={"a.yaml": b"x: 1\n"}))
    assert (seen.uid, seen.hostname, seen.systemd, seen.uptime, seen.epoch) == (0, "node", "252", 1000.5, 1700000000)
    assert seen.kubelet is not None and seen.kubelet.argv == node.KUBEADM_ARGV and seen.kubelet.version == "v1.36.3"
    assert seen.started_at(seen.kubelet) == 1700000000 - (1000.5 - 50)
    assert seen.data("/var/lib/kubelet/config.yaml") == node.CONFIG
    assert seen.directories["/etc/kubernetes/manifests"] == ("a.yaml",)
    absent = seen.file("/etc/default/kubelet")
    assert absent is not None and absent.kind == "none" and absent.data is None
    assert seen.file("/never/looked/at") is None


@pytest.mark.parametrize("cut", [0, 1, 7, -1])
def test_a_look_that_was_cut_short_is_an_error(cut: int) -> None:
    with pytest.raises(ObservationError, match="n1"):
        parse("n1", node.answer()[:cut])


@pytest.mark.parametrize("line", ["file x", "process kubelet a b c d e", "unit"])
def test_a_garbled_line_is_an_error(line: str) -> None:
    with pytest.raises(ObservationError, match="n1: line"):
        parse("n1", node.answer(extra=[line]))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (node.file_line("/f", b"", kind="link"), "symbolic link"),
        (node.file_line("/f", b"", attributes="----i---"), "immutable"),
        (node.file_line("/f", b"", mountpoint="/f"), "bind mount"),
        (node.file_line("/f", None, kind="directory"), "regular file"),
    ],
)
def test_targets_that_a_rename_cannot_replace(line: str, why: str) -> None:
    file = parse("n1", node.answer(extra=[line])).file("/f")
    assert file is not None and why in (file.why_not_replaceable() or "")


def test_an_ordinary_target_can_be_replaced() -> None:
    file = parse("n1", node.answer()).file("/var/lib/kubelet/config.yaml")
    assert file is not None and file.why_not_replaceable() is None


def test_a_kubeadm_node() -> None:
    found = kubelet.find(parse("n1", node.answer()))
    assert (found.style, found.config_path, found.manifests, found.node_name) == (
        "kubeadm",
        "/var/lib/kubelet/config.yaml",
        "/etc/kubernetes/manifests",
        "node",
    )
    assert found.health_url == "http://127.0.0.1:10248/healthz"
    assert found.service.known_argv == node.KUBEADM_ARGV


def test_a_plain_node() -> None:
    found = kubelet.find(parse("n1", node.answer(style="plain")))
    assert found.style == "plain" and found.config_path == "/etc/kubernetes-node/kubelet.yaml"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"uid": 1000}, "needs root"),
        ({"needs_reload": "yes"}, "daemon-reload"),
        ({"tools": [tool for tool in node.TOOLS if tool != "flock"]}, "lacks flock"),
        ({"tools": [tool for tool in node.TOOLS if tool != "curl"]}, "none of curl"),
        ({"extra": [f"process k3s-server 9 1 {node.b64('k3s')}= {node.b64('x')}= {node.b64('k3s')}="]}, "k3s"),
        ({"files": {"/var/lib/kubelet/config.yaml": b"kind: Other\n"}}, "not a KubeletConfiguration"),
        ({"files": {"/var/lib/kubelet/config.yaml": node.CONFIG + b"featureGates: {A: 'true'}\n"}}, "not a boolean"),
        ({"files": {"/var/lib/kubelet/config.yaml": node.CONFIG + b"healthzPort: 0\n"}}, "switched off"),
    ],
)
def test_nodes_that_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(Refusal, match=words) as refused:
        kubelet.find(parse("n1", node.answer(**changes)))  # type: ignore[arg-type]
    assert str(refused.value).startswith("n1: ")


def test_a_second_look_is_asked_for_only_where_the_first_was_wrong() -> None:
    assert kubelet.wanted(parse("n1", node.answer())) == ([], [])
    moved = node.CONFIG.replace(b"/etc/kubernetes/manifests", b'"/srv/p\\u006fds"')
    assert kubelet.wanted(parse("n1", node.answer(files={"/var/lib/kubelet/config.yaml": moved}))) == ([], ["/srv/pods"])
