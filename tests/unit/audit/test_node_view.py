"""Every source that sets something is found, with its line, also on nodes that no deploy would change."""

from __future__ import annotations

import pytest

from roles.audit.node_view import view_of, wanted
from roles.engine.transaction import Refusal
from tests.unit.audit.fleet import CONFIG, EXTRA, config, control_plane, make
from tests.unit.node import node
from tests.unit.node.node import parse

DROPIN = "/etc/systemd/system/kubelet.service.d/20-own.conf"


def places(found: object) -> dict[str, tuple[str, str, int | None, bool]]:
    return {one.name: (one.value, one.file, one.line, one.counts) for one in found}  # type: ignore[attr-defined]


def test_gates_of_a_file_with_their_lines() -> None:
    seen = make(files={CONFIG: config("featureGates:", "  A: true", "  # why", "  B: false")})
    first = len(config().splitlines()) + 2
    assert places(seen.gates) == {"A": ("true", CONFIG, first, True), "B": ("false", CONFIG, first + 2, True)}


@pytest.mark.parametrize(
    ("path", "data", "line", "variable"),
    [
        (EXTRA, b'# own\n\nKUBELET_EXTRA_ARGS="--v=2 --feature-gates=A=true"\n', 3, "KUBELET_EXTRA_ARGS"),
        (EXTRA, b'KUBELET_EXTRA_ARGS="--v=2 \\\n  --feature-gates=B=false,A=true"\n', 2, "KUBELET_EXTRA_ARGS"),
        ("/var/lib/kubelet/kubeadm-flags.env", b'KUBELET_KUBEADM_ARGS="--feature-gates=A=true"\n', 1, "KUBELET_KUBEADM_ARGS"),
    ],
)
def test_a_flag_of_an_environment_file(path: str, data: bytes, line: int, variable: str) -> None:
    seen = make(files={path: data})
    found = seen.winner("kubelet", "A")
    assert found is not None and (found.source, found.file, found.line, found.variable) == ("flag", path, line, variable)


def test_a_flag_of_a_command_of_several_lines() -> None:
    unit = node.PLAIN_UNIT.replace(b"  --v=2 \\\n", b"  --v=2 \\\n  --feature-gates=A=true \\\n")
    seen = make(style="plain", unit=unit)
    found = seen.winner("kubelet", "A")
    assert found is not None and found.line == unit[: unit.index(b"--feature-gates")].count(b"\n") + 1
    assert found.file == "/etc/systemd/system/kubelet.service"


def test_the_last_place_counts() -> None:
    flags = b'KUBELET_EXTRA_ARGS="--feature-gates=A=false --max-pods=50"\n'
    seen = make(files={CONFIG: config("featureGates:", "  A: true"), EXTRA: flags})
    assert [(one.source, one.counts) for one in seen.gates] == [("file", False), ("flag", True)]
    pods = [(one.source, one.value, one.counts) for one in seen.settings if one.name == "maxPods"]
    assert pods == [("file", "110", False), ("flag", "50", True)]


def test_a_flag_replaces_a_whole_map_of_the_file() -> None:
    seen = make(files={CONFIG: config(), EXTRA: b"KUBELET_EXTRA_ARGS=--eviction-hard=memory.available<1Gi\n"})
    counting = {one.name: one.value for one in seen.settings if one.counts and one.name.startswith("evictionHard")}
    assert counting == {"evictionHard.memory.available": "1Gi"}


def test_what_another_source_overrides_is_marked() -> None:
    dropin = b'[Service]\nEnvironment="KUBELET_EXTRA_ARGS=--cloud-config=/x --v=1"\n'
    seen = make(dropins={DROPIN: dropin}, files={EXTRA: b"KUBELET_EXTRA_ARGS=--v=4\n"})
    found = {flag.name: (flag.masked, flag.place.file, flag.place.line) for flag in seen.flags if flag.name in ("cloud-config",)}
    assert found == {"cloud-config": (True, DROPIN, 2)}
    assert [flag.value for flag in seen.flags if flag.name == "v" and not flag.masked] == ["4"]


def test_gates_of_a_manifest() -> None:
    seen = make("cp1", **control_plane("--feature-gates=B=true,A=false"))
    found = seen.winner("kube-apiserver", "A")
    assert found is not None and found.file == "/etc/kubernetes/manifests/kube-apiserver.yaml"
    text = node.manifest("kube-apiserver", "--feature-gates=B=true,A=false", "--v=2").decode().splitlines()
    assert found.line is not None and "--feature-gates" in text[found.line - 1]


def test_a_node_that_no_deploy_would_change_is_read_anyway() -> None:
    seen = make(needs_reload="yes", tools=("sh",), files={CONFIG: config("healthzPort: 0", "featureGates:", "  A: true")})
    assert seen.kind == "kubeadm" and seen.winner("kubelet", "A") is not None


def test_two_manifests_of_one_component_do_not_hide_it() -> None:
    parts = control_plane()
    parts["manifests"] = {**parts["manifests"], "kube-apiserver.yaml.bak": node.manifest("kube-apiserver", "--feature-gates=Old=true")}
    seen = make("cp1", **parts)
    assert set(seen.components) == {"kube-apiserver", "kube-controller-manager", "kube-scheduler"}
    assert seen.components["kube-apiserver"].file.path.endswith(".bak"), "the kubelet uses the lexically last"


def test_a_broken_file_and_a_foreign_kind_are_reported() -> None:
    broken = make(files={CONFIG: b"kind: KubeletConfiguration\na: [\n"})
    assert broken.kind == "unreadable" and CONFIG in broken.why
    foreign = f"process k3s-server 77 5000 {node.b64('k3s')}= {node.b64('0::/x')}= {node.b64('/usr/bin/k3s')}="
    seen = make(extra=[foreign])
    assert seen.kind == "unsupported" and "k3s" in seen.why


def test_without_root_nothing_can_be_read() -> None:
    with pytest.raises(Refusal, match="needs root"):
        view_of(parse("w1", node.answer(uid=1000)))


def test_directories_of_drop_ins_are_read() -> None:
    _, directories = wanted(parse("w1", node.answer(argv=(*node.KUBEADM_ARGV, "--config-dir=/etc/kubernetes/conf.d/"))))
    assert {"/etc/systemd/system/kubelet.service.d", "/usr/lib/systemd/system/kubelet.service.d", "/etc/kubernetes/conf.d"} <= {
        *directories
    }


def test_without_an_api_the_sources_give_the_values() -> None:
    flags = b'KUBELET_EXTRA_ARGS="--max-pods=50 --eviction-hard=memory.available<1Gi"\n'
    seen = make(asked=False, files={CONFIG: config(), EXTRA: flags})
    assert seen.effective["maxPods"] == 50 and seen.effective["evictionHard"] == {"memory.available": "1Gi"}
    assert seen.effective["clusterDomain"] == "cluster.local"
