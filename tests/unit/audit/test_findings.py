"""Each kind of finding: when it is reported, with node, file and line; and when it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.audit import Collected, configmaps, drift, report, versions
from roles.audit.examine import on_node
from roles.audit.model import FindingReport
from roles.audit.node_view import NodeView
from roles.desired import NodeDesired, read_valid
from roles.engine.disruption import DisruptionRule
from roles.engine.findings import Finding
from roles.engine.kubeadm_config import stored
from roles.engine.node.logind import parse_inhibitor, parse_logind
from roles.engine.node_lint import NodeRule, looks_like_a_backup
from roles.feature_gates import load
from tests.unit.audit.fleet import CONFIG, EXTRA, MADE, config, control_plane, make, rows
from tests.unit.node import node

MANIFESTS = "/etc/kubernetes/manifests"
UNITS = "/etc/systemd/system/kubelet.service.d"
CONF = "/etc/kubernetes/conf.d"


def of(found: Iterable[FindingReport], kind: str = "") -> list[tuple[str, str, str | None, int | None]]:
    """Severity, kind, file and line."""
    return [(one.severity.value, one.kind, one.file, one.line) for one in found if kind in ("", one.kind)]


def line(data: bytes, text: str) -> int:
    return next(number for number, row in enumerate(data.decode().splitlines(), 1) if text in row)


def one(found: Iterable[FindingReport]) -> FindingReport:
    listed = list(found)
    assert len(listed) == 1, listed
    return listed[0]


def by(judge: Callable[..., Iterable[Finding]], *more: Any, **changes: Any) -> list[FindingReport]:
    """What a judge of nodes finds on one."""
    return rows(judge(make(**changes), *more))


# ---- nothing


def test_a_clean_cluster_has_no_findings() -> None:
    views = [make("cp1", groups=("control_plane",), **control_plane()), make("w1"), make("w2")]
    desired = {view.host: _desired(feature_gates={"HPAScaleToZero": False}) for view in views}
    found = report(Collected(views, desired, _lasting()), load(), made=MADE, target=37)
    assert found.findings == () and found.code == 0


def test_the_file_that_keeps_a_kubelet_from_starting_is_named() -> None:
    found = one(report(Collected([make(files={CONFIG: b"maxPods: 1\nkind: [\n"})]), load(), made=MADE).findings)
    assert (found.kind, found.file) == ("unreadable", CONFIG) and "line" in found.rule


# ---- disruption


@pytest.mark.parametrize(("severity", "code"), [("critical", 2), ("warning", 2), ("note", 0)])
def test_a_note_about_disruption_does_not_count(severity: Any, code: int) -> None:
    problem = DisruptionRule.UNPROTECTED.found(("Deployment kube-system/coredns",), "2 pods, and no budget", "create one", severity)
    made = report(Collected([make("w1")], findings=[problem]), load(), made=MADE)
    assert len(made.findings) == 1 and made.code == code


# ---- strays


@pytest.mark.parametrize(
    "name",
    [
        "kube-apiserver.yaml.bak", "kube-apiserver.yaml~", "kube-apiserver.yaml.rpmsave", "kube-apiserver-old.yaml", "x.bak.conf", "x.conf.orig",
        "kube-apiserver.yaml.2024-01-31", "kube-apiserver.2024-01-31T10:11:12.yaml", "x.yaml.20240131", "x.yaml.save.1", "x (copy).yaml", "x.yaml.1",
        "x.yaml.dpkg-dist", "x_backup.yaml", "x.yaml.12345.2024-01-31@10:11:12~", "x.yaml.swp",
    ],
)  # fmt: skip
def test_names_of_backups(name: str) -> None:
    assert looks_like_a_backup(name)


@pytest.mark.parametrize(
    "name", ["kube-apiserver.yaml", "10-kubeadm.conf", "etcd.json", "node-2.yaml", "oldest.yaml", "copycat.yaml", "10-v1.36.conf"]
)
def test_names_that_are_not_backups(name: str) -> None:
    assert not looks_like_a_backup(name)


@given(st.text(alphabet="abcdefgh-", min_size=1, max_size=12), st.sampled_from([".bak", "~", ".orig", ".rpmsave", ".yaml.old"]))
def test_backups_of_any_name(name: str, ending: str) -> None:
    assert looks_like_a_backup(name + ending)


def test_a_second_pod_of_the_same_name() -> None:
    found = one(by(on_node, manifests={"web.yaml": node.manifest("web"), "web-two.yaml": node.manifest("web")}))
    assert of([found]) == [("critical", "stray", f"{MANIFESTS}/web-two.yaml", line(node.manifest("web"), "name: web"))]
    assert f"lexically last, which is {MANIFESTS}/web.yaml" in found.rule


def test_a_backup_of_a_manifest_wins_over_it() -> None:
    found = one(by(on_node, manifests={"web.yaml": node.manifest("web"), "web.yaml.bak": node.manifest("web")}))
    assert (found.kind, found.file) == ("backup", f"{MANIFESTS}/web.yaml.bak") and "which is " + f"{MANIFESTS}/web.yaml.bak" in found.rule


def test_a_backup_alone_is_a_separate_pod() -> None:
    assert of(by(on_node, manifests={"web.yaml.bak": node.manifest("web")})) == [("critical", "backup", f"{MANIFESTS}/web.yaml.bak", 4)]


def test_files_that_are_not_pods() -> None:
    found = by(on_node, manifests={"a.txt": b"hello\n", "b.rpmsave": b"kind: Service\n"})
    assert [(each.severity.value, each.kind, each.file) for each in found] == [
        ("warning", "stray", f"{MANIFESTS}/a.txt"),
        ("warning", "backup", f"{MANIFESTS}/b.rpmsave"),
    ]


def test_directories_and_dotfiles_are_not_read() -> None:
    extra = [
        node.file_line(f"{MANIFESTS}/old", None, "directory"),
        f"hidden {node.b64(MANIFESTS + '/.web.yaml.swp')}",
        f"hidden {node.b64(MANIFESTS + '/.kubelet-keep')}",
    ]
    found = by(on_node, extra=extra)
    assert sorted((each.severity.value, each.file) for each in found) == [
        ("note", f"{MANIFESTS}/.web.yaml.swp"),
        ("note", f"{MANIFESTS}/old"),
    ]


def _dropins(**files: bytes) -> NodeView:
    """A node with a --config-dir."""
    argv = (*node.KUBEADM_ARGV, f"--config-dir={CONF}")
    listed = [f"directory {node.b64(CONF)}", *(node.file_line(f"{CONF}/{name}", data) for name, data in files.items())]
    return make(argv=argv, files={EXTRA: f"KUBELET_EXTRA_ARGS=--config-dir={CONF}\n".encode()}, extra=listed)


def test_copies_in_the_configurations_drop_in_directory() -> None:
    own = b"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 5\n"
    found = rows(on_node(_dropins(**{"10.conf": own, "10.bak.conf": own.replace(b"5", b"6"), "20.conf": own, "x.yaml": b"x\n"})))
    assert of(found, "backup") == [("critical", "backup", f"{CONF}/10.bak.conf", 3), ("critical", "backup", f"{CONF}/20.conf", 3)]
    assert of(found, "stray") == [("note", "stray", f"{CONF}/x.yaml", None)]


def test_copies_of_unit_drop_ins() -> None:
    own = b"[Service]\nNice=-1\n"
    found = by(on_node, dropins={f"{UNITS}/20-own-old.conf": own, f"{UNITS}/20-own.conf": own, f"{UNITS}/30-own.conf": own})
    assert of(found) == [("critical", "backup", f"{UNITS}/20-own-old.conf", 2), ("critical", "backup", f"{UNITS}/30-own.conf", 2)]


# ---- what runs


def test_a_new_drop_in_that_systemd_has_not_read() -> None:
    extra = [f"directory {node.b64(UNITS)}", node.file_line(f"{UNITS}/30-late.conf", b"# late\n[Service]\nNice=1\n")]
    found = by(on_node, needs_reload="yes", extra=extra)
    assert of(found) == [("critical", "daemon-reload", f"{UNITS}/30-late.conf", 3)]


def test_an_edited_unit_and_one_that_is_gone() -> None:
    edited = one(by(on_node, style="plain", needs_reload="yes"))
    assert edited.file == "/etc/systemd/system/kubelet.service" and "was written" in (edited.value or "")
    assert of(by(on_node)) == []


def test_an_argument_that_the_kubelet_does_not_have_yet() -> None:
    found = one(by(on_node, files={EXTRA: b"# x\nKUBELET_EXTRA_ARGS=--max-pods=50\n"}, configuration={"maxPods": 50}))
    assert (found.kind, found.file, found.line, found.name) == ("stale", EXTRA, 2, "max-pods")


def test_an_argument_that_no_file_has_any_longer() -> None:
    found = one(by(on_node, argv=(*node.KUBEADM_ARGV, "--node-ip=10.0.0.1")))
    assert found.name == "node-ip" and found.value == "--node-ip=10.0.0.1"


def test_the_same_arguments_in_another_order_and_spelling_are_no_finding() -> None:
    argv = (node.KUBEADM_ARGV[0], "--max_pods", "50", "--node-labels=b=2,a=1", *node.KUBEADM_ARGV[:0:-1])
    data = b'KUBELET_EXTRA_ARGS="--max-pods=50 --node-labels=a=1,b=2"\n'
    assert of(by(on_node, argv=argv, files={EXTRA: data}, configuration={"maxPods": 50})) == []


def test_arguments_that_only_systemd_can_resolve_are_not_known() -> None:
    unit = node.PLAIN_UNIT.replace(b"--v=2", b"--v=2 %i")
    made = report(Collected([make(style="plain", unit=unit, argv=(*node.PLAIN_ARGV, "x"))]), load(), made=MADE)
    assert [one for one in made.not_known if "which may be any flags" in one and one.startswith("w1 kubelet: ")]
    assert not [one for one in made.findings if one.kind == "stale"]


def test_a_switch_with_another_value_is_a_finding() -> None:
    argv = (*node.KUBEADM_ARGV, "--fail-swap-on")
    found = one(by(on_node, argv=argv, files={EXTRA: b"KUBELET_EXTRA_ARGS=--fail-swap-on=false\n"}, configuration={"failSwapOn": False}))
    assert (found.kind, found.name, found.value) == ("stale", "fail-swap-on", "--fail-swap-on=false")


def test_a_field_with_another_value_in_the_kubelet() -> None:
    data = config()
    found = one(by(on_node, files={CONFIG: data}, configuration={"maxPods": 250}))
    assert (found.file, found.line, found.name, found.value) == (CONFIG, line(data, "maxPods"), "maxPods", "maxPods: 110")


def test_a_gate_with_another_value_in_the_process() -> None:
    data = config("featureGates:", "  NodeSwap: false")
    found = one(by(on_node, files={CONFIG: data}, configuration={"featureGates": {}}))
    assert (found.file, found.line, found.name) == (CONFIG, line(data, "NodeSwap"), "NodeSwap")
    assert of(by(on_node, files={CONFIG: data}, configuration={"featureGates": {}}, gates={"NodeSwap": False})) == []


def _younger(written: int = 1700003000, **changes: Any) -> NodeView:
    """The configuration was written an hour after the kubelet's start (at 1699999049.5 by the node's clock)."""
    entry = f"file {node.b64(CONFIG)} file 644 0 0 {written} {node.b64('/')}= - {node.b64(config())}="
    return make(extra=[entry], **changes)


def test_a_file_younger_than_its_process() -> None:
    assert of(rows(on_node(_younger()))) == [("note", "stale", CONFIG, None)]
    assert of(rows(on_node(_younger(asked=False)))) == [("warning", "stale", CONFIG, None)]


@pytest.mark.parametrize(("written", "reported"), [(1699999049, False), (1699999050, False), (1699999051, True)])
def test_a_file_is_younger_if_its_second_began_after_the_start(written: int, reported: bool) -> None:
    """The node's clock says whole seconds: the kubelet started at any time in the second from 1699999049.5 on."""
    assert bool(of(rows(on_node(_younger(written))))) == reported


def test_what_differs_is_not_reported_again_for_its_age() -> None:
    assert [each.name for each in rows(on_node(_younger(configuration={"maxPods": 250})))] == ["maxPods"]


def test_a_manifest_that_was_not_applied() -> None:
    parts = control_plane()
    data = node.manifest("kube-apiserver", "--v=4")
    parts["manifests"] = {**parts["manifests"], "kube-apiserver.yaml": data}
    found = one(by(on_node, host="cp1", **parts))
    assert (found.component, found.file, found.line) == ("kube-apiserver", f"{MANIFESTS}/kube-apiserver.yaml", line(data, "--v=4"))


def test_of_a_manifest_with_a_variable_the_other_words_are_compared() -> None:
    for words, found in ((("--v=2",), []), (("--v=4",), ["--v=4"])):
        parts = control_plane()
        parts["manifests"]["kube-apiserver.yaml"] = node.manifest("kube-apiserver", "--advertise-address=$(HOST_IP)", *words)
        parts["components"]["kube-apiserver"] = ("kube-apiserver", "--advertise-address=10.0.0.1", "--v=2")
        assert [each.value for each in by(on_node, host="cp1", **parts)] == found


def test_a_component_that_has_a_manifest_and_does_not_run() -> None:
    parts = control_plane()
    del parts["components"]["kube-scheduler"]
    view = make("cp1", **parts)
    (found,) = on_node(view)
    assert (found.rule, found.place.component, found.place.file) == (NodeRule.COMPONENT, "kube-scheduler", MANIFESTS)
    assert of(rows([found])) == [("warning", "stale", MANIFESTS, None)] and not on_node(view.as_worker())


def test_a_manifest_that_cannot_be_read_is_the_cause_that_its_component_is_not_clear() -> None:
    parts = control_plane()
    parts["manifests"]["kube-scheduler.yaml"] = b"kind: [Pod"
    assert [each.rule for each in on_node(make("cp1", **parts))] == [NodeRule.BROKEN]


def test_a_gate_that_no_file_has_any_longer() -> None:
    view = _younger(configuration={"featureGates": {"NodeSwap": False}}, gates={"NodeSwap": False})
    (found,) = on_node(view)
    assert (found.rule, found.place.name, found.place.file) == (NodeRule.SETTING, "NodeSwap", CONFIG)


def test_an_environment_file_that_is_younger_has_its_arguments_compared_without_the_api() -> None:
    entry = f"file {node.b64(EXTRA)} file 644 0 0 1700003000 {node.b64('/')}= - {node.b64(b'KUBELET_EXTRA_ARGS=')}="
    (found,) = on_node(make(extra=[entry], asked=False))
    assert (found.rule, found.severity, found.place.file) == (NodeRule.YOUNGER, "note", EXTRA)


@pytest.mark.parametrize(
    ("state", "severity"), [("applied", "warning"), ("applying", "warning"), ("reverting", "warning"), ("revert-failed", "critical")]
)
def test_changes_in_flight(state: str, severity: str) -> None:
    change = f"change {node.b64('r1-w1-kubelet')} {node.b64(f'state={state}' + chr(10) + 'run=r1')}="
    found = one(by(on_node, extra=[change]))
    assert (found.severity, found.kind, found.file) == (severity, "in-flight", "/var/lib/daytwo/active/r1-w1-kubelet")


# ---- versions


def _gates(*gates: str, target: int | None = None, **running: bool) -> list[FindingReport]:
    lines = [f"  {gate.replace('=', ': ')}" for gate in gates]
    return by(versions.findings, load(), target, files={CONFIG: config("featureGates:", *lines)}, gates=running)


@pytest.mark.parametrize(
    ("gate", "severity", "words"),
    [
        ("NoSuchGate=true", "critical", "does not know it"),
        ("NodeSwop=true", "critical", "does not know it"),
        ("MemoryManager=true", "critical", "removed in 1.36"),
        ("InPlacePodVerticalScaling=false", "critical", "locked to true"),
        ("InPlacePodVerticalScaling=true", "note", "no effect"),
        ("KubeletRegistrationGetOnExistsOnly=false", "warning", "deprecated"),
        ("HPAScaleToZero=true", "note", "does not read it"),
        ("AllAlpha=true", "warning", "every gate of its stage"),
    ],
)
def test_gates_at_their_own_version(gate: str, severity: str, words: str) -> None:
    found = one(each for each in _gates(gate) if each.kind == "gate")
    assert (found.severity, found.file, found.value) == (severity, CONFIG, gate) and words in found.rule
    assert found.line == len(config().splitlines()) + 2 and "the data" not in found.way_out


@pytest.mark.parametrize("gate", ["KubeletInUserNamespace=true", "PLEGOnDemandRelist=true", "PLEGOnDemandRelist=false"])
def test_gates_without_a_finding(gate: str) -> None:
    assert [each for each in _gates(gate) if each.severity != "note"] == []


@pytest.mark.parametrize(
    ("gate", "severity", "words"),
    [
        ("SidecarContainers=true", "critical", "removed in v1.37"),
        ("PreventStaticPodAPIReferences=false", "critical", "removed in v1.37"),
        ("HostnameOverride=false", "critical", "in v1.37 it is locked to true"),
        ("HostnameOverride=true", "note", "no longer has an effect"),
    ],
)
def test_gates_at_the_target(gate: str, severity: str, words: str) -> None:
    found = one(each for each in _gates(gate, target=37) if each.kind == "target-version")
    assert (found.severity, found.file) == (severity, CONFIG) and words in found.rule
    assert not [each for each in _gates(gate) if each.kind == "target-version"]
    assert not [each for each in _gates(gate, target=36) if each.kind == "target-version"]


def test_flags_that_the_target_no_longer_has_in_every_source() -> None:
    flags = "/var/lib/kubelet/kubeadm-flags.env"
    dropin = f"{UNITS}/20-own.conf"
    files = {flags: b'KUBELET_KUBEADM_ARGS="--log-cadvisor-usage=false"\n', EXTRA: b"KUBELET_EXTRA_ARGS=--v=2\n"}
    masked = b'[Service]\nEnvironment="KUBELET_EXTRA_ARGS=--boot-id-file=/x"\n'
    found = by(versions.findings, load(), 37, files=files, dropins={dropin: masked})
    assert of(found, "target-version") == [("critical", "target-version", flags, 1), ("note", "target-version", dropin, 2)]


def test_a_flag_that_is_gone_already() -> None:
    found = one(by(versions.findings, load(), files={EXTRA: b"KUBELET_EXTRA_ARGS=--pod-infra-container-image=x\n"}))
    assert (found.severity, found.name) == ("critical", "pod-infra-container-image") and "removed in v1.35" in found.rule


def test_fields_that_the_kubelet_ignores() -> None:
    data = config("maxPodz: 7", "memorySwap:", "  swapBehaviour: x")
    found = by(versions.findings, load(), files={CONFIG: data})
    assert of(found) == [("warning", "field", CONFIG, line(data, "maxPodz")), ("warning", "field", CONFIG, line(data, "swapBehaviour"))]
    assert "did you mean maxPods" in found[0].way_out


@pytest.mark.parametrize(("value", "minor"), [(None, None), (1.37, 37), ("v1.37", 37), ("1.37.2", 37), ("v1.30", 30)])
def test_targets(value: Any, minor: int | None) -> None:
    assert versions.parse_target(value, load()) == minor


@pytest.mark.parametrize(
    ("value", "words"), [(1.3, "write v1.30"), ("1.99", "not known"), ("37", "write a minor release"), (True, "minor release")]
)
def test_targets_that_are_not_known(value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        versions.parse_target(value, load())


# ---- the inventory


def _desired(**values: Any) -> NodeDesired:
    return read_valid("w1", values.get)


def test_drift_of_gates() -> None:
    data = config("featureGates:", "  NodeSwap: false")
    view = make(files={CONFIG: data}, gates={"NodeSwap": False})
    found = one(rows(drift.findings(view, _desired(feature_gates={"NodeSwap": True}))))
    assert (found.kind, found.file, found.line, found.value) == ("drift", CONFIG, line(data, "NodeSwap"), "NodeSwap=false")
    assert of(rows(drift.findings(view, _desired(feature_gates={"NodeSwap": "absent"})))) == [
        ("warning", "drift", CONFIG, line(data, "NodeSwap"))
    ]
    assert of(rows(drift.findings(view, _desired(feature_gates={"NodeSwap": False})))) == []
    assert of(rows(drift.findings(view, _desired(feature_gates={"NodeSwap": True}, only="w9")))) == []


def test_a_gate_that_no_file_sets_is_placed_in_the_manifest() -> None:
    desired = _desired(feature_gates={"HPAScaleToZero": True}, components="kube-apiserver")
    found = one(by(drift.findings, desired, host="cp1", **control_plane()))
    assert (found.component, found.file) == ("kube-apiserver", f"{MANIFESTS}/kube-apiserver.yaml")


def test_drift_of_fields_and_thresholds() -> None:
    data = config()
    found = by(drift.findings, _desired(kubelet_config="maxPods=200", eviction_hard="memory.available=500Mi"), files={CONFIG: data})
    assert [(each.kind, each.name, each.line) for each in found] == [
        ("drift", "maxPods", line(data, "maxPods")),
        ("drift", "evictionHard.memory.available", line(data, "memory.available")),
    ]


def test_invalid_data() -> None:
    assert of(by(drift.findings, NodeDesired(problems=("feature_gates: x",)))) == [("warning", "inventory", None, None)]
    assert of(by(drift.findings, _desired(kubelet_config="maxPodz=1"))) == [("warning", "inventory", None, None)]


# ---- flags and files


def test_flags_that_override_a_file() -> None:
    data = config("featureGates:", "  NodeSwap: false")
    flags = b'KUBELET_EXTRA_ARGS="--max-pods=50 --feature-gates=NodeSwap=true --eviction-hard=memory.available<100Mi,nodefs.available<5%"\n'
    found = by(drift.findings, NodeDesired(), files={CONFIG: data, EXTRA: flags})
    assert {(each.kind, each.file, each.line, each.name) for each in found} == {
        ("flag-beats-file", CONFIG, line(data, "NodeSwap"), "NodeSwap"),
        ("flag-beats-file", CONFIG, line(data, "maxPods"), "maxPods"),
        ("flag-beats-file", CONFIG, line(data, "nodefs.available"), "evictionHard.nodefs.available"),
    }
    assert any("--max-pods in /etc/default/kubelet:1 (KUBELET_EXTRA_ARGS) says 50" in each.rule for each in found)


def test_a_flag_that_says_what_the_file_says() -> None:
    assert of(by(drift.findings, NodeDesired(), files={CONFIG: config(), EXTRA: b"KUBELET_EXTRA_ARGS=--max-pods=110\n"})) == []


# ---- siblings


def test_one_that_differs_from_most() -> None:
    data = config("featureGates:", "  NodeSwap: false")
    odd = make("w3", files={CONFIG: data}, gates={"NodeSwap": False}, configuration={"maxPods": 99})
    found = rows(drift.siblings([make("w1", files={CONFIG: config()}), make("w2", files={CONFIG: config()}), odd]))
    assert [(each.node, each.name, each.line) for each in found] == [
        ("w3", "NodeSwap", line(data, "NodeSwap")),
        ("w3", "maxPods", line(data, "maxPods")),
    ]
    assert "w1, w2 have true" in found[0].rule


def test_of_two_the_one_that_sets_it() -> None:
    data = config("featureGates:", "  NodeSwap: false")
    found = rows(drift.siblings([make("w1", files={CONFIG: config()}), make("w2", files={CONFIG: data}, gates={"NodeSwap": False})]))
    assert [(each.node, each.name) for each in found] == [("w2", "NodeSwap")]


@pytest.mark.parametrize("other", [{"groups": ("control_plane",)}, control_plane()])
def test_other_nodes_are_not_siblings(other: dict[str, Any]) -> None:
    changes: dict[str, Any] = {**other, "files": {CONFIG: config()}, "configuration": {"maxPods": 99}}
    assert of(rows(drift.siblings([make("w1", files={CONFIG: config()}), make("w2", **changes)]))) == []


def test_paths_are_not_compared_across_kinds_of_nodes() -> None:
    plain = make(
        "w2", style="plain", files={"/etc/kubernetes-node/kubelet.yaml": config()}, configuration={"clusterDomain": "x", "maxPods": 99}
    )
    found = rows(drift.siblings([make("w1", files={CONFIG: config()}), plain]))
    assert {each.name for each in found} == {"maxPods"}


def test_the_same_value_in_another_form() -> None:
    views = [make("w1", files={CONFIG: config()}), make("w2", files={CONFIG: config()}, configuration={"syncFrequency": "60s"})]
    assert of(rows(drift.siblings(views))) == []


# ---- ConfigMaps

CLUSTER = """apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
apiServer:
  extraArgs:
  - name: v
    value: "2"
"""


def _lasting(cluster: str = CLUSTER, kubelet: bytes | None = None) -> stored.StoredSettings:
    maps = {"kubeadm-config": ("ClusterConfiguration", cluster), "kubelet-config": ("kubelet", (kubelet or node.CONFIG).decode())}
    return stored.parse({"metadata": {"name": name}, "data": {key: text}} for name, (key, text) in maps.items())


def test_what_kubeadm_would_bring_and_take_away() -> None:
    data = config("featureGates:", "  NodeSwap: false")
    view = make(files={CONFIG: data}, gates={"NodeSwap": False})
    kept = config("featureGates:", "  HPAScaleToZero: true").replace(b"maxPods: 110", b"maxPods: 120")
    found = rows(configmaps.findings(_lasting(kubelet=kept), [view], load()))
    place = "configmap kube-system/kubelet-config kubelet"
    assert {(each.kind, each.name, each.file, each.line) for each in found} == {
        ("split-brain", "NodeSwap", CONFIG, line(data, "NodeSwap")),
        ("split-brain", "HPAScaleToZero", place, line(kept, "HPAScaleToZero")),
        ("split-brain", "maxPods", CONFIG, line(data, "maxPods")),
    }


@pytest.mark.parametrize("form", ["v1beta3", "v1beta4"])
def test_gates_of_the_control_plane_in_the_configmap(form: str) -> None:
    args = (
        "    feature-gates: HostnameOverride=false\n"
        if form == "v1beta3"
        else "  - name: feature-gates\n    value: HostnameOverride=false\n"
    )
    cluster = f"apiVersion: kubeadm.k8s.io/{form}\nkind: ClusterConfiguration\napiServer:\n  extraArgs:\n{args}"
    found = rows(configmaps.findings(_lasting(cluster), [make("cp1", **control_plane())], load(), 37))
    place = "configmap kube-system/kubeadm-config ClusterConfiguration"
    assert of(found) == [("critical", "target-version", place, 5), ("warning", "split-brain", place, 5)]
    assert found[0].node is None and found[1].node == "cp1"


def test_nodes_without_kubeadm_are_not_compared_with_it() -> None:
    view = make(style="plain", files={"/etc/kubernetes-node/kubelet.yaml": config("featureGates:", "  NodeSwap: false")})
    assert of(rows(configmaps.findings(_lasting(), [view], load()))) == []


def test_a_configmap_that_cannot_be_read() -> None:
    found = one(rows(configmaps.findings(_lasting("kind: Other\n"), [], load())))
    assert (found.severity, found.kind, found.node) == ("critical", "unreadable", None)


# ---- configured, without effect


def idle(**changes: Any) -> list[tuple[str | None, str]]:
    seen = changes.pop("seen", {})
    made = make("w1", **changes)
    view = replace(made, seen=replace(made.seen, **seen))
    return [(one.name, one.rule) for one in report(Collected([view]), load(), made=MADE).findings if one.kind == "no-effect"]


def test_a_kubelet_that_ends_no_pods_at_a_shutdown_although_it_should() -> None:
    conf = {"shutdownGracePeriod": "120s"}
    logind = parse_logind("yes", "yes", "= /usr/lib/systemd/logind.conf.d/z.conf\n[Login]\nInhibitDelayMaxSec=30\n")
    ((name, rule),) = idle(configuration=conf, seen={"logind": logind})
    assert name == "shutdownGracePeriod" and "/usr/lib/systemd/logind.conf.d/z.conf gives 30 s of the 120 s" in rule
    pid = make("w1").processes["kubelet"].pid
    lock = parse_inhibitor(f"WHAT=shutdown\nWHO=kubelet\nMODE=delay\nPID={pid}\n")
    assert idle(configuration=conf, seen={"inhibitors": (lock,)}) == []
    assert [name for name, _ in idle(configuration=conf, seen={"inhibitors": (replace(lock, pid="1"),)})] == ["shutdownGracePeriod"]
    assert idle(configuration={"shutdownGracePeriod": "0s"}) == []


@pytest.mark.parametrize(("written", "found"), [("0s", []), ("5s", ["cpuManagerReconcilePeriod"])])
def test_a_field_without_effect_that_kubeadm_writes_as_zero_is_not_set(written: str, found: list[str]) -> None:
    files = {"/var/lib/kubelet/config.yaml": config(f"cpuManagerReconcilePeriod: {written}")}
    assert [
        name for name, _ in idle(files=files, configuration={"cpuManagerReconcilePeriod": "10s" if written == "0s" else written})
    ] == found


def test_an_audit_log_in_the_container() -> None:
    argv = ("kube-apiserver", "--audit-log-path=/var/log/audit.log")
    found = idle(components={"kube-apiserver": argv}, manifests={"kube-apiserver.yaml": node.manifest(*argv)})
    assert [name for name, _ in found] == ["audit-log-path", "audit-log-path"]
    assert "/var/log/ is no mount of the pod" in found[0][1] + found[1][1] and "no event is written" in found[0][1] + found[1][1]
