"""Plans of gates: where gates are written, what is refused, the questions to the binaries, and the proof."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from roles.engine.api import GateMetric
from roles.engine.kubelet import ask
from roles.engine.node_changes import Verdicts
from roles.engine.node_changes.node_plan import question, question_present
from roles.engine.proof.effective import unmet_gates
from roles.engine.transaction import Refusal
from roles.feature_gates import COMPONENTS, DesiredGates, GatePlan, NodeGates, Subject, judge_gates, moves, plan_gates, read_gates
from tests.unit.node import node
from tests.unit.node.node import parse
from tests.unit.node.surveyed import surveyed

ON = DesiredGates(feature_gates={"A": True})
ABSENT = DesiredGates(feature_gates={"A": "absent"})  # type: ignore[dict-item]
CONTROL_PLANE = {name: (name, "--v=2") for name in COMPONENTS[:3]}
MANIFESTS = {f"{name}.yaml": node.manifest(*argv) for name, argv in CONTROL_PLANE.items()}


def plan(desired: DesiredGates, **changes: Any) -> NodeGates:
    return plan_gates("r1", surveyed(parse("n1", node.answer(**changes))), desired)


def edits(made: NodeGates) -> dict[str, bytes | None]:
    return {edit.path: edit.after for planned in made.planned if planned.change for edit in planned.change.files}


# ---- the desired gates


@pytest.mark.parametrize(
    ("value", "gates"),
    [
        ({"A": True, "B": "absent"}, {"A": True, "B": None}),
        ("A=true,B=false,C=absent", {"A": True, "B": False, "C": None}),
        ("A=T, B=0 ,", {"A": True, "B": False}),
    ],
)
def test_gates_are_read(value: Any, gates: dict[str, bool | None]) -> None:
    assert DesiredGates(feature_gates=value).feature_gates == gates


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"feature_gates": "A=yes"}, "A=yes is not a boolean; write true, false or absent"),
        ({"feature_gates": "A"}, "'A' has no value"),
        ({"feature_gates": {}}, "empty"),
        ({"feature_gates": {"A b": True}}, "'A b' is not the name of a gate"),
        ({"feature_gates": {"A": 7}}, "A=7 is not a boolean"),
        ({"feature_gates": "A=true", "components": "kube-proxy"}, "'kube-proxy' is not one of"),
    ],
)
def test_invalid_data_is_refused(data: dict[str, Any], words: str) -> None:
    with pytest.raises(Refusal, match=f"^w1: .*{words}"):
        read_gates("w1", data.get)


def test_a_host_without_gates_has_no_desired_state() -> None:
    assert read_gates("w1", {}.get) is None


def test_components_may_have_short_names_and_are_sorted_as_a_rollout_sorts_them() -> None:
    assert DesiredGates(feature_gates={"A": True}, components="kubelet,scheduler,apiserver").components == (  # type: ignore[arg-type]
        "kube-apiserver",
        "kube-scheduler",
        "kubelet",
    )


# ---- where gates are written


def test_kubeadm_keeps_gates_in_its_config_file() -> None:
    made = plan(ON)
    assert edits(made) == {"/var/lib/kubelet/config.yaml": node.CONFIG + b"featureGates:\n  A: true\n"}
    change = made.planned[0].change
    assert change is not None and not change.daemon_reload and change.old_argv == change.new_argv == node.KUBEADM_ARGV


def test_a_plain_kubelet_keeps_gates_in_its_environment_file() -> None:
    made = plan(ON, style="plain")
    assert edits(made) == {"/etc/default/kubelet": b'# This file was made by daytwo\nKUBELET_EXTRA_ARGS="--feature-gates=A=true"\n'}
    change = made.planned[0].change
    assert change is not None and not change.daemon_reload and change.new_argv == (*node.PLAIN_ARGV, "--feature-gates=A=true")
    assert (
        made.outlook
        == "    /etc/default/kubelet: flags of this kubelet are set there, and a flag overrides /etc/kubernetes-node/kubelet.yaml"
    )
    assert plan(ON).outlook == ""


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"export KUBELET_EXTRA_ARGS=--v=2", "`export` is shell syntax"),
        (b"\xef\xbb\xbfKUBELET_EXTRA_ARGS=--v=2", "a byte order mark precedes the name"),
        (b"KUBELET-EXTRA-ARGS=--v=2", "is not a variable name"),
        (b"KUBELET EXTRA_ARGS KUBELET_EXTRA_ARGS=--v=2", "there is a blank in the name"),
    ],
)
def test_a_line_that_systemd_ignores_is_reported_before_one_is_added_after_it(line: bytes, why: str) -> None:
    made = plan(ON, style="plain", files={"/etc/default/kubelet": line + b"\n"})
    assert edits(made) == {"/etc/default/kubelet": line + b'\n# Added by daytwo\nKUBELET_EXTRA_ARGS="--feature-gates=A=true"\n'}
    (warning,) = made.warnings
    assert (
        warning.startswith("/etc/default/kubelet, line 1: systemd ignores this, and does not set KUBELET_EXTRA_ARGS: ") and why in warning
    )


def test_an_environment_file_that_systemd_does_not_read_is_reported_and_not_written() -> None:
    files = {"/etc/default/kubelet": b"# ours\nKUBELET_EXTRA_ARGS=\xff\n"}
    made = plan(ON, files=files)
    assert list(edits(made)) == ["/var/lib/kubelet/config.yaml"]
    assert "/etc/default/kubelet, line 2: systemd ignores this: an assignment is not UTF-8" in made.warnings[0]
    with pytest.raises(Refusal, match="/etc/default/kubelet, line 2: an assignment is not UTF-8, so systemd reads none of the file"):
        plan(ON, style="plain", files=files)


def test_an_empty_list_of_the_kubelet_counts_as_the_list() -> None:
    files = {"/etc/default/kubelet": b"KUBELET_EXTRA_ARGS='--feature-gates= --v=4'\n"}
    made = plan(ON, style="plain", files=files, argv=(*node.PLAIN_ARGV, "--feature-gates=", "--v=4"))
    assert edits(made) == {"/etc/default/kubelet": b"KUBELET_EXTRA_ARGS='--feature-gates=A=true --v=4'\n"} and made.warnings == ()


UNREAD = node.PLAIN_UNIT.replace(b" \\\n  $KUBELET_EXTRA_ARGS", b"")
OWN = "/etc/systemd/system/kubelet.service"


def test_an_operators_unit_that_reads_no_variable_is_edited_at_its_command() -> None:
    made = plan(ON, style="plain", unit=UNREAD)
    assert edits(made) == {OWN: UNREAD.replace(b"--v=2", b"--v=2 --feature-gates=A=true")}
    change = made.planned[0].change
    assert change is not None and change.daemon_reload and change.new_argv == (*node.PLAIN_ARGV, "--feature-gates=A=true")
    assert made.warnings == ()


def linked(data: bytes) -> list[str]:
    """The answer of a node whose unit in /etc is a link to a package's file."""
    lines = node.answer(style="plain", unit=data)
    return [node.file_line(OWN, data, kind="link") if line == node.file_line(OWN, data) else line for line in lines]


def test_a_unit_that_is_not_the_operators_gets_a_dropin_with_a_copy_and_a_warning() -> None:
    made = plan_gates("r1", surveyed(parse("n1", linked(UNREAD))), ON)
    (path,) = edits(made)
    assert path == "/etc/systemd/system/kubelet.service.d/90-daytwo-feature-gates.conf"
    change = made.planned[0].change
    assert change is not None and change.daemon_reload and change.new_argv == (*node.PLAIN_ARGV, "--feature-gates=A=true")
    assert made.warnings == (
        f"{path} copies ExecStart= of {OWN}, which reads no variable. Later edits of that file have no effect until {path} is removed:"
        " daytwo removes it with the last flag that it has added there (absent)",
    )


@pytest.mark.parametrize(("unit", "warned"), [(UNREAD, False), (UNREAD.replace(b"--v=2", b"--v=2 --max-pods=7"), True)])
def test_a_unit_that_has_changed_since_it_was_copied_is_reported(unit: bytes, warned: bool) -> None:
    copied = edits(plan_gates("r1", surveyed(parse("n1", linked(UNREAD))), ON))
    dropins = {path: data for path, data in copied.items() if data is not None}
    made = plan(ON, style="plain", unit=unit, dropins=dropins, argv=(*node.PLAIN_ARGV, "--feature-gates=A=true"))
    assert edits(made) == {}
    assert bool(made.warnings) is warned and (
        not warned or f"copies ExecStart= of {OWN}. That command has changed since" in made.warnings[0]
    )


def test_a_flag_overrides_the_config_file_and_the_gate_is_changed_there() -> None:
    environment = b"KUBELET_EXTRA_ARGS=--feature-gates=A=false\n"
    config = node.CONFIG + b"featureGates: {A: false}\n"
    argv = (*node.KUBEADM_ARGV, "--feature-gates=A=false")
    changes = {"files": {"/etc/default/kubelet": environment, "/var/lib/kubelet/config.yaml": config}, "argv": argv}
    assert edits(plan(ON, **changes)) == {"/etc/default/kubelet": b"KUBELET_EXTRA_ARGS=--feature-gates=A=true\n"}
    assert edits(plan(ABSENT, **changes)) == {"/etc/default/kubelet": b"KUBELET_EXTRA_ARGS=\n", "/var/lib/kubelet/config.yaml": node.CONFIG}


def test_a_dropin_of_the_configuration_overrides_the_file() -> None:
    dropin = b"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfeatureGates:\n  A: false\n"
    argv = (*node.KUBEADM_ARGV, "--config-dir=/etc/kubelet.d")
    unit_dropin = node.KUBEADM_DROPIN.replace(b"--config=", b"--config-dir=/etc/kubelet.d --config=")
    made = plan(
        ON,
        argv=argv,
        files={"/etc/kubelet.d/10-a.conf": dropin, "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": unit_dropin},
        extra=[f"directory {node.b64('/etc/kubelet.d')}"],
    )
    assert edits(made) == {"/etc/kubelet.d/10-a.conf": dropin.replace(b"false", b"true")}


@pytest.mark.parametrize("null", [b"null", b"~", b""])
def test_a_dropin_that_removes_all_gates_is_reported_before_a_gate_is_added(null: bytes) -> None:
    dropin = b"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfeatureGates: " + null + b"\n"
    argv = (*node.KUBEADM_ARGV, "--config-dir=/etc/kubelet.d")
    changes = {
        "argv": argv,
        "files": {"/etc/kubelet.d/10-a.conf": dropin},
        "dropins": {
            "/etc/systemd/system/kubelet.service.d/50.conf": b'[Service]\nEnvironment="KUBELET_EXTRA_ARGS=--config-dir=/etc/kubelet.d"\n'
        },
        "extra": [f"directory {node.b64('/etc/kubelet.d')}"],
    }
    with pytest.raises(Refusal, match=r"10-a\.conf: featureGates is null here, which removes all gates .* remove the key"):
        plan(ON, **changes)
    assert edits(plan(ABSENT, **changes)) == {}


def test_gates_as_desired_need_no_change_and_no_question() -> None:
    made = plan(ON, files={"/var/lib/kubelet/config.yaml": node.CONFIG + b"featureGates:\n  A: true\n"})
    assert edits(made) == {} and question(made) == ""
    assert edits(plan(ABSENT)) == {}


def test_a_control_plane_node_is_changed_component_by_component() -> None:
    made = plan(ON, manifests=MANIFESTS, components=CONTROL_PLANE)
    changes = [planned.change for planned in made.planned if planned.change]
    assert [change.component for change in changes] == list(COMPONENTS)
    for change in changes[:3]:
        assert change.kind == "static-pod" and len(change.files) == 1
        assert change.new_argv == (change.component, "--v=2", "--feature-gates=A=true")
        assert change.pod == f"kube-system_{change.component}-node"


def test_components_narrow_the_plan() -> None:
    desired = DesiredGates(feature_gates={"A": True}, components=("kube-scheduler",))
    made = plan(desired, manifests=MANIFESTS, components=CONTROL_PLANE)
    assert [planned.component for planned in made.planned] == ["kube-scheduler"]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ({"kube-scheduler.yaml": b"a: ["}, "kube-scheduler.yaml.*not YAML"),
        ({"kube-scheduler.yaml": node.manifest("other")}, "no manifest in /etc/kubernetes/manifests has such a container"),
        ({"kube-scheduler.yaml.bak": node.manifest("kube-scheduler")}, "both define a kube-scheduler"),
        ({"kube-scheduler.yaml": node.manifest("kube-scheduler", "--feature-gates=A=maybe")}, "not a boolean"),
    ],
)
def test_manifests_that_cannot_be_changed_are_refused(spoil: dict[str, bytes], words: str) -> None:
    with pytest.raises(Refusal, match=words):
        plan(ON, manifests={**MANIFESTS, **spoil}, components=CONTROL_PLANE)


def test_a_packages_own_file_is_not_edited() -> None:
    unit = node.KUBEADM_DROPIN.replace(b"$KUBELET_EXTRA_ARGS", b"--feature-gates=A=false $KUBELET_EXTRA_ARGS")
    with pytest.raises(Refusal, match="belongs to a package"):
        plan(
            ON,
            files={"/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": unit},
            argv=(*node.KUBEADM_ARGV, "--feature-gates=A=false"),
        )


def test_a_restart_that_would_apply_more_is_warned_of() -> None:
    (warning,) = plan(ON, argv=(*node.KUBEADM_ARGV, "--v=9")).warnings
    assert warning == "the running kubelet's arguments differ from its files; a restart also applies: no --v (now --v=9)"


def test_order_and_spelling_of_arguments_do_not_matter() -> None:
    unit = node.PLAIN_UNIT.replace(b"--v=2", b"--v 2 --max_pods 7 --max-pods=5")
    argv = (node.PLAIN_ARGV[0], "--max-pods=5", *reversed(node.PLAIN_ARGV[1:]))
    assert plan(ON, style="plain", unit=unit, argv=argv).warnings == ()


# ---- asking the binaries

ACCEPTED = 'E1 1 run.go:72] "command failed" err="failed to validate kubelet configuration, error: invalid configuration: maxPods (--max-pods) -1 must not be a negative number, path: &TypeMeta{Kind:,APIVersion:,}"'
SECOND_ERROR = 'E1 1 run.go:72] "command failed" err="failed to validate kubelet configuration, error: [invalid configuration: maxPods (--max-pods) -1 must not be a negative number, invalid configuration: x], path: &T{}"'


def verdict(component: str, code: int, said: str) -> str:
    line = f"answer {component} {code} {base64.b64encode(said.encode()).decode()}="
    return ask.verdicts([line])[component]


def test_a_kubelet_may_object_only_to_the_deliberate_bad_value() -> None:
    assert verdict("kubelet", 1, ACCEPTED) == ""
    assert "invalid configuration: x" in verdict("kubelet", 1, SECOND_ERROR)
    assert verdict("kubelet", 2, "panic: unrecognized feature gate: X\n\ngoroutine 1") == "unrecognized feature gate: X"
    assert verdict("kubelet", 0, "") != "", "a kubelet that exits with 0 has not judged anything"


def test_the_other_components_print_their_version_or_an_error() -> None:
    assert verdict("kube-scheduler", 0, "Kubernetes v1.36.3") == ""
    assert verdict("kube-scheduler", 1, 'E1 x] "command failed" err="unrecognized feature gate: X"') == "unrecognized feature gate: X"
    assert verdict("kube-scheduler", 2, "") != ""


@pytest.mark.parametrize("code", [124, 125, 127, 137])
def test_a_binary_that_does_not_answer_in_time_has_no_verdict(code: int) -> None:
    said = base64.b64encode(ACCEPTED.encode()).decode()
    assert ask.verdicts([f"answer kubelet {code} {said}="]) == {}
    assert ask.listed([f"listed kubelet {said[:3]}"]) == {}


def judged(made: NodeGates, answers: dict[str, str], desired: DesiredGates = ON, **more: Any) -> tuple[tuple[str, ...], list[str]]:
    """Warnings and refusals."""
    metrics = more.pop("metrics", {})
    plan = judge_gates(made, Verdicts(answers, **more), desired, metrics)
    return plan.warnings, [str(refusal) for refusal in plan.refusals]


def test_a_refusal_of_the_binary_is_a_refusal_of_the_plan() -> None:
    made = plan(ON)
    allowing = DesiredGates(feature_gates={"A": True}, allow_unknown_gates=True)
    assert "n1: kubelet v1.36.3 refuses A=true: cannot set A" in judged(made, {"kubelet": "cannot set A"}, allowing)[1][0]
    assert "could not be asked" in judged(made, {})[1][0]
    unknown = {"kubelet": "unrecognized feature gate: A"}
    assert "unrecognized" in judged(made, unknown)[1][0]
    warnings, refusals = judged(made, unknown, allowing)
    assert refusals == [] and any("allow_unknown_gates" in warning for warning in warnings)


RESIZE = DesiredGates(feature_gates={"InPlacePodVerticalScaling": True}, components=("kubelet",), allow_hazards="InPlacePodVerticalScaling")


@pytest.mark.parametrize(
    ("minor", "before", "told"),
    [(32, None, True), (32, False, True), (32, True, False), (33, False, False)],
    ids=["by-default-off", "off", "on-already", "without-the-default"],
)
def test_a_kubelets_gate_that_recreates_static_pods_is_announced(minor: int, before: bool | None, told: bool) -> None:
    def planned(**more: Any) -> NodeGates:
        # The kubelet's version comes in a line of its own.
        version = node.b64(f"Kubernetes v1.{minor}.0")
        told = [re.sub(r"^version 100 .*", f"version 100 {version}=", line) for line in node.answer(**more)]
        return plan_gates("r1", surveyed(parse("n1", told)), RESIZE)

    made = planned(manifests=MANIFESTS, components=CONTROL_PLANE)
    metrics = {} if before is None else {"kubelet": {"InPlacePodVerticalScaling": GateMetric("ALPHA", before)}}
    warnings, refusals = judged(made, {"kubelet": ""}, RESIZE, metrics=metrics)
    assert refusals == []
    found = [text for text in warnings if "recreates this node's static pods" in text]
    # The proof then expects that.
    (kubelet,) = judge_gates(made, Verdicts({"kubelet": ""}), RESIZE, metrics).planned
    assert kubelet.recreates_static_pods is told
    assert bool(found) is told and (not told or "kube-apiserver, kube-controller-manager, kube-scheduler, and etcd" in found[0])
    # A worker may have static pods of its own.
    warnings, _ = judged(planned(), {"kubelet": ""}, RESIZE, metrics=metrics)
    found = [text for text in warnings if "recreates this node's static pods" in text]
    assert bool(found) is told and (not told or "static pods, if it has any" in found[0])


CLASHING = {
    "files": {
        "/etc/default/kubelet": b"# ours\nKUBELET_EXTRA_ARGS='--v=2 --feature-gates=Gone=true'\n",
        "/var/lib/kubelet/config.yaml": node.CONFIG + b"featureGates:\n  Old: true\nmaxPods: 5\n",
    },
    "argv": node.KUBEADM_ARGV,
}


@pytest.mark.parametrize(
    ("said", "where"),
    [
        ("unrecognized feature gate: Gone", "/etc/default/kubelet, line 2"),
        ("unrecognized feature gate: Old", "/var/lib/kubelet/config.yaml, line 5"),
        ("failed to parse kubelet flag: invalid argument for --v", "/etc/default/kubelet, line 2"),
        (
            "failed to validate kubelet configuration, error: [invalid configuration: maxPods (--max-pods) -1 must not be a negative number,"
            " invalid configuration: staticPodPath is no path], path: &TypeMeta{}",
            "/var/lib/kubelet/config.yaml, line 3",
        ),
    ],
)
def test_present_files_that_are_refused_are_named_and_the_change_is_not_blamed(said: str, where: str) -> None:
    made = plan(ON, **CLASHING)
    assert question_present(made, {"kubelet": ""}) == "" and "answer kubelet" in question_present(made, {"kubelet": said})
    for desired in (ON, DesiredGates(feature_gates={"A": True}, allow_unknown_gates=True)):
        (refusal,) = judged(made, {"kubelet": said}, desired, present={"kubelet": said})[1]
        assert "rejects its current files, without this change: " in refusal and f"({where})" in refusal, refusal
        assert "A=true" not in refusal and "remove it from the data" not in refusal and "-1 must" not in refusal
    # If the binary accepts the present files, the change is to blame.
    assert "refuses A=true" in judged(made, {"kubelet": said}, present={"kubelet": ""})[1][0]
    # A binary that ended without output, such as after a timeout, has named nothing.
    assert (
        "refuses A=true" in judged(made, {"kubelet": said}, present={"kubelet": "it ended with exit status 124 and printed nothing"})[1][0]
    )


def test_the_question_about_the_present_files_shows_them_unchanged() -> None:
    made = plan(ON, **CLASHING)
    script = question_present(made, {"kubelet": "no"})
    shown = [base64.b64decode(part) for part in re.findall(r"<<'\.'\n(.*?)\n\.", script, re.DOTALL)]
    assert shown == [CLASHING["files"]["/var/lib/kubelet/config.yaml"]] and "Gone=true" in script and "A=true" not in script


def test_a_present_manifest_that_is_refused_is_named() -> None:
    manifests = {**MANIFESTS, "kube-scheduler.yaml": node.manifest("kube-scheduler", "--v=2", "--feature-gates=F=true,Gone=true")}
    made = plan(ON, manifests=manifests, components=CONTROL_PLANE)
    said = {**dict.fromkeys(COMPONENTS, ""), "kube-scheduler": "unrecognized feature gate: Gone"}
    (refusal,) = judged(made, said, present={"kube-scheduler": said["kube-scheduler"]})[1]
    assert (
        "kube-scheduler v1.36.3 rejects its current files" in refusal
        and "(/etc/kubernetes/manifests/kube-scheduler.yaml, line 11)" in refusal
    )
    assert "--feature-gates=F=true,Gone=true" in question_present(made, said)


# ---- the catalogue and the binary

HAZARD = DesiredGates(feature_gates={"AllAlpha": True})


def test_a_refusal_of_only_the_catalogue_is_a_warning() -> None:
    warnings, refusals = judged(plan(ON), {"kubelet": ""})
    assert refusals == []
    assert warnings[0].startswith(
        "kubelet v1.36.3 accepts this, and its binary decides; the catalogue of gates says: A: kubelet 1.36 does not know it"
    )


def test_a_refusal_of_only_the_binary_is_a_refusal() -> None:
    known = DesiredGates(feature_gates={"PodAndContainerStatsFromCRI": True})
    warnings, refusals = judged(plan(known), {"kubelet": "unrecognized feature gate: PodAndContainerStatsFromCRI"}, known)
    assert warnings == () and "kubelet v1.36.3 refuses PodAndContainerStatsFromCRI=true: unrecognized" in refusals[0]


def test_a_refusal_has_the_way_out_of_its_rule() -> None:
    slip = DesiredGates(feature_gates={"PodAndContainerStatsFromCR": True})
    assert "did you mean PodAndContainerStatsFromCRI?" in judged(plan(slip), {"kubelet": "unrecognized feature gate: x"}, slip)[1][0]


@pytest.mark.parametrize(
    ("gate", "value", "said", "first"),
    [
        (
            "InPlacePodVerticalScaling",
            False,
            "cannot set feature gate x to false",
            "from the data: in 1.36 it is locked to true (GA since 1.35)",
        ),
        ("JobPodFailurePolicy", True, "unrecognized feature gate: x", "from the data: it was removed in 1.33, as GA and true by default"),
    ],
)
def test_a_gate_that_all_refuse_for_one_cause_is_one_line_with_its_way_out_first(gate: str, value: bool, said: str, first: str) -> None:
    wanted = DesiredGates(feature_gates={gate: value})
    made = plan(wanted, manifests=MANIFESTS, components=CONTROL_PLANE)
    judged_plan = judge_gates(made, Verdicts(dict.fromkeys(COMPONENTS, said)), wanted, {})
    [text] = Refusal.texts(judged_plan.refusals)
    assert text.startswith(f"Remove {gate} {first}. Refused by kube-") and text.endswith("kubelet on n1")


def test_a_hazard_is_refused_although_the_binary_accepts_it() -> None:
    assert "allow_hazards=AllAlpha" in judged(plan(HAZARD), {"kubelet": ""}, HAZARD)[1][0]
    consented = HAZARD.model_copy(update={"allow_hazards": ("AllAlpha",)})
    warnings, refusals = judged(plan(consented), {"kubelet": ""}, consented)
    assert refusals == [] and "(allowed by allow_hazards)" in warnings[0]


def test_the_kubelet_gets_no_prefix() -> None:
    prefixed = DesiredGates(feature_gates="kube:PodAndContainerStatsFromCRI=true")  # type: ignore[arg-type]
    assert edits(plan(prefixed))["/var/lib/kubelet/config.yaml"] == node.CONFIG + b"featureGates:\n  PodAndContainerStatsFromCRI: true\n"
    assert "the kubelet does not know the prefix" in judged(plan(prefixed), {"kubelet": ""}, prefixed)[1][0]


def test_all_refusals_of_a_node_come_together() -> None:
    made = plan(ON, manifests=MANIFESTS, components=CONTROL_PLANE)
    _, refusals = judged(made, dict.fromkeys(COMPONENTS, "unrecognized feature gate: A"))
    assert len(refusals) == 4


def test_a_components_own_list_and_metrics_are_compared_with_the_catalogue() -> None:
    known = DesiredGates(feature_gates={"PodAndContainerStatsFromCRI": True})
    listed = {"kubelet": "PodAndContainerStatsFromCRI=true|false (BETA - default=false)"}
    warnings, refusals = judged(plan(known), {"kubelet": ""}, known, listed=listed)
    assert refusals == [] and "this kubelet reports Beta, off by default: its report counts" in warnings[0]
    metrics = {"kubelet": {"HPAScaleToZero": GateMetric("ALPHA", False)}}
    warnings, _ = judged(plan(known), {"kubelet": ""}, known, metrics=metrics)
    assert "this kubelet reports unknown" in " ".join(warnings)


@pytest.mark.parametrize(("version", "words"), [("v1.44.0", "does not cover 1.44"), ("", "its version is unknown")])
def test_a_version_that_the_catalogue_does_not_know_is_reported(version: str, words: str) -> None:
    lines = [line for line in node.answer() if not line.startswith("version 100 ")]
    made = plan_gates("r1", surveyed(parse("n1", [*lines[:-1], *([f"version 100 {node.b64(version)}="] if version else []), "end"])), ON)
    warnings, refusals = judged(made, {"kubelet": ""})
    assert refusals == [] and len(warnings) == 1 and words in warnings[0]


# ---- only the components that read the gate


def test_components_that_do_not_read_a_gate_are_left_out() -> None:
    made = plan(DesiredGates(feature_gates={"PodAndContainerStatsFromCRI": True}), manifests=MANIFESTS, components=CONTROL_PLANE)
    assert [planned.component for planned in made.planned] == ["kubelet"]
    assert [(item.component, item.gate) for item in made.left_out] == [(name, "PodAndContainerStatsFromCRI") for name in COMPONENTS[:3]]


@pytest.mark.parametrize("more", [{"all_components": True}, {"components": "kube-scheduler"}])
def test_components_that_are_named_and_all_components_are_not_left_out(more: dict[str, Any]) -> None:
    desired = DesiredGates(feature_gates={"PodAndContainerStatsFromCRI": True}, **more)
    made = plan(desired, manifests=MANIFESTS, components=CONTROL_PLANE)
    assert {planned.component for planned in made.planned} == {*desired.components} and made.left_out == ()
    warnings, refusals = judged(made, dict.fromkeys(COMPONENTS, ""), desired)
    assert refusals == []
    assert "PodAndContainerStatsFromCRI has no effect in kube-scheduler 1.36, which does not read it; kubelet does" in warnings


def test_a_source_that_stays_as_it_is_is_reported() -> None:
    environment = b"KUBELET_EXTRA_ARGS=--feature-gates=HPAScaleToZero=true\n"
    argv = (*node.KUBEADM_ARGV, "--feature-gates=HPAScaleToZero=true")
    made = plan(DesiredGates(feature_gates={"HPAScaleToZero": "absent"}), files={"/etc/default/kubelet": environment}, argv=argv)  # type: ignore[dict-item]
    assert made.planned == () and made.left_out[0].set_to is True


@pytest.mark.parametrize(
    ("wanted", "sourced", "metrics", "directions"),
    [
        ({"HPAScaleToZero": True}, {}, {}, {True}),
        ({"HPAScaleToZero": False}, {}, {}, set()),
        ({"HPAScaleToZero": False}, {"HPAScaleToZero": True}, {}, {False}),
        ({"HPAScaleToZero": None}, {"HPAScaleToZero": True}, {}, {False}),
        ({"APIResponseCompression": None}, {"APIResponseCompression": False}, {}, {True}),
        ({"HPAScaleToZero": True, "APIResponseCompression": False}, {}, {}, {True, False}),
        ({"HPAScaleToZero": True}, {}, {"HPAScaleToZero": GateMetric("ALPHA", True)}, set()),
        ({"NoSuchGate": True}, {}, {}, {True}),
        ({"NoSuchGate": None}, {"NoSuchGate": True}, {}, set()),
    ],
)
def test_the_directions_of_a_change(
    wanted: dict[str, bool | None], sourced: dict[str, bool], metrics: dict[str, GateMetric], directions: set[bool]
) -> None:
    planned = GatePlan("kubelet", None, wanted=wanted, sourced=sourced, subject=Subject("kubelet", 36))
    assert moves(planned, metrics) == directions


def test_the_gates_that_the_binaries_list_are_read() -> None:
    line = f"listed kubelet {base64.b64encode(b'A=true|false (ALPHA - default=false)').decode()}="
    assert ask.listed([line, "answer kubelet 0 ="]) == {"kubelet": "A=true|false (ALPHA - default=false)"}


# ---- proof


def test_the_gates_of_the_process_are_compared_with_the_desired_gates() -> None:
    (planned,) = plan(DesiredGates(feature_gates={"A": True, "B": False, "C": "absent"})).planned  # type: ignore[dict-item]
    assert (
        unmet_gates(
            planned.component, planned.gates, {"A": GateMetric("ALPHA", True), "B": GateMetric("", False), "C": GateMetric("", True)}
        )
        == []
    )
    found = unmet_gates(planned.component, planned.gates, {"A": GateMetric("ALPHA", False)})
    assert "A=false, wanted true" in str(found[0]) and "does not publish B" in str(found[1])
