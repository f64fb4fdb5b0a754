"""Each kind of fault is reported once, by the check that names it."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from roles import sleeping
from roles.checks import ClusterFound, Evidence, judge, report
from roles.checks.evidence import KUBELET, Health, of_observation
from roles.checks.judge import CHECKS, RULES
from roles.desired import ClusterDesired, NodeDesired, of_the_cluster, read_desired
from roles.engine.api import GateMetric
from roles.engine.disruption import DisruptionObjects
from roles.engine.findings import Result, Severity
from roles.engine.findings.render import exit_code
from roles.engine.node_lint import NodeRule
from roles.engine.starting import Cause, Obstacle, Stops
from roles.priority_classes import ObservedClasses
from roles.sleeping import Ends, SleepRule
from tests.unit.autoscaling.world import hpa
from tests.unit.checks.world import APISERVER, CONFIGURATION, READY, evidence, failed, moments, verdicts
from tests.unit.node import node
from tests.unit.node.node import parse
from tests.unit.sleeping.world import OFF, marked, sleeper

SCHEDULER = ("kube-scheduler",)
CONTROL_PLANE = {"kube-apiserver": APISERVER, "kube-scheduler": SCHEDULER}


def wanting(**data: Any) -> NodeDesired:
    return read_desired("w1", data.get)


def test_a_healthy_node_fails_nothing() -> None:
    found = evidence(components=CONTROL_PLANE)
    told = verdicts(found, wanting(feature_gates="A=absent", kubelet_config={"maxPods": 110}, eviction_hard="memory.available=100Mi"))
    assert {outcome for outcome, _ in told.values()} == {"pass", "skip"}, told
    skipped = {check for check, (outcome, _) in told.items() if outcome == "skip"}
    assert skipped == {"kube-controller-manager-healthy", "kube-controller-manager-gates", "control-plane-flags"}
    assert list(told) == [check.name for check in CHECKS]


def test_a_worker_has_no_control_plane_to_check() -> None:
    told = verdicts(evidence())
    skipped = {check for check, (outcome, _) in told.items() if outcome == "skip"}
    assert {"control-plane-runs", "kube-apiserver-healthy", "kubelet-gates", "kubelet-settings", "eviction-thresholds"} <= skipped
    assert failed(evidence()) == {}


EXTRA_DROPIN = {"/etc/systemd/system/kubelet.service.d/20-more.conf": b"[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--v=4\n"}


def not_running() -> Evidence:
    lines = [line for line in node.answer() if not line.startswith(("process kubelet", "version", "unit"))]
    stopped = {"ActiveState": "inactive", "SubState": "dead", "MainPID": "0"}
    return replace(of_observation(parse("w1", lines)), moments=moments(stopped, stopped, start=0))


def looping() -> Evidence:
    waiting = {"ActiveState": "activating", "SubState": "auto-restart", "MainPID": "0", "NRestarts": "7", "Result": "exit-code"}
    return replace(not_running(), moments=moments(waiting, waiting, start=0))


def unwell() -> Evidence:
    return replace(
        evidence(), health={KUBELET: Health("000", "Connection refused")}, node="its kubelet is not healthy", configuration="not asked"
    )


def with_change(state: str) -> Evidence:
    record = node.b64(f"state={state}\nrun=r1\nwho=me\ncommand=x\n")
    return evidence(extra=[f"change {node.b64('r1-w1-kubelet')} {record}="])


NOT_READY = {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "cni is gone"}]}}
POD = node.manifest("web")


@pytest.mark.parametrize(
    ("found", "check", "why"),
    [
        (not_running(), "kubelet-running", r"kubelet\.service is inactive \(dead"),
        (looping(), "kubelet-stable", r"it ended \(exit-code\) and systemd starts it again: 7 restarts"),
        (replace(evidence(), moments=moments({}, {"MainPID": "101", "NRestarts": "1"})), "kubelet-stable", "PID changed from 100 to 101"),
        (replace(evidence(), moments=moments({"MainPID": "101", "NRestarts": "1"})), "kubelet-stable", "PID changed from 100 to 101"),
        (replace(evidence(), moments=moments({"UnitFileState": "disabled"})), "kubelet-enabled", r"kubelet\.service .*is-enabled says disabled; .*`systemctl enable kubelet\.service`"),
        (evidence(needs_reload="yes", dropins=EXTRA_DROPIN), "kubelet-unit", NodeRule.UNIT),
        (evidence(files={"/var/lib/kubelet/config.yaml": None}), "kubelet-files", r"/var/lib/kubelet/config\.yaml: .*cannot be read now"),
        (unwell(), "kubelet-healthy", r"http://127\.0\.0\.1:10248/healthz answers nothing: Connection refused"),
        (evidence(dropins=EXTRA_DROPIN), "kubelet-arguments", NodeRule.ARGUMENT),
        (evidence(configuration={**CONFIGURATION, "staticPodPath": "/x"}), "kubelet-configuration", NodeRule.SETTING),
        (replace(evidence(), node=NOT_READY), "node-ready", r"Ready is False \(KubeletNotReady\): cni is gone"),
        (evidence(manifests={"web.yaml~": POD}), "manifests-clean", NodeRule.BACKUP),
        (evidence(manifests={"note.txt~": b"milk\n"}), "manifests-clean", NodeRule.NO_MANIFEST),
        (evidence(manifests={"web.yaml": POD, "web-old.yml": POD}), "manifests-pods", NodeRule.TWIN),
        (evidence(manifests={"web.yaml": POD, "web.yaml~": POD}), "manifests-pods", NodeRule.TWIN),
        (evidence(manifests={"web.yaml": b"kind: [Pod"}), "manifests-pods", NodeRule.BROKEN),
        (evidence(components=CONTROL_PLANE, manifests={"kube-apiserver-old.yaml": node.manifest("kube-apiserver")}), "manifests-pods", NodeRule.TWIN),
        (evidence(manifests={"kube-scheduler.yaml": node.manifest("kube-scheduler")}), "control-plane-runs", NodeRule.COMPONENT),
        (evidence(components={"kube-apiserver": APISERVER}, manifests={"kube-apiserver.yaml": node.manifest(*APISERVER, "--v=4")}), "control-plane-arguments", NodeRule.MANIFEST),
        (with_change("revert-failed"), "changes-settled", NodeRule.IN_FLIGHT),
    ],
)  # fmt: skip
def test_a_fault_fails_exactly_the_check_that_names_it(found: Evidence, check: str, why: str | NodeRule) -> None:
    wanted = wanting(feature_gates="A=absent", kubelet_config={"maxPods": 110}, eviction_hard="memory.available=100Mi")
    (told,) = (one for one in judge.node(found, wanted) if one.outcome == "fail")
    assert told.check == check and told.why, told
    assert told.causes == (why,) if isinstance(why, NodeRule) else re.search(why, told.why), told


@pytest.mark.parametrize("name", ["web.manifest", "web"])
def test_a_manifest_of_any_name_is_one(name: str) -> None:
    assert failed(evidence(manifests={name: POD})) == {}


def test_what_has_no_effect_fails_no_check() -> None:
    folder = "/etc/kubernetes/manifests"
    found = evidence(
        manifests={"web.yaml": POD}, extra=[node.file_line(f"{folder}/old", None, "directory"), f"hidden {node.b64(f'{folder}/.x')}"]
    )
    assert failed(found) == {} and NodeRule.SKIPPED in {one.rule for one in found.wrong}


def test_every_rule_for_a_node_that_is_no_note_fails_one_check() -> None:
    """A copy of a drop-in is the audit's alone."""
    named = [rule for rules in RULES.values() for rule in rules]
    assert sorted(named) == sorted(rule for rule in NodeRule if rule.severity is not Severity.note and rule is not NodeRule.COPY)
    assert RULES.keys() <= {check.name for check in CHECKS}


def test_of_a_kubelet_of_an_unknown_version_the_fields_are_not_compared() -> None:
    found = evidence(extra=[f"version 100 {node.b64('Kubernetes v1.99.0')}="], configuration={**CONFIGURATION, "maxPods": 7})
    assert verdicts(found)["kubelet-configuration"][0] == "unknown"


def test_a_gate_that_a_file_has_meanwhile_with_the_value_that_runs_changes_nothing() -> None:
    files = {"/var/lib/kubelet/config.yaml": node.CONFIG + b"featureGates:\n  A: true\n"}
    found = evidence(files=files)
    assert list(failed(found)) == ["kubelet-configuration"], "/configz does not have it, and /metrics are not known"
    assert failed(replace(found, effective={KUBELET: {"A": gate(True)}})) == {}
    assert list(failed(replace(found, effective={KUBELET: {"A": gate(False)}}))) == ["kubelet-configuration"]


def test_a_kubelet_whose_api_server_does_not_answer_is_well_and_one_that_asks_another_is_not() -> None:
    other = Obstacle(
        "w1", KUBELET, Cause.api, Stops.start, "/x.conf", "https://cp9", "", "it does not answer within 5 s", "correct the file"
    )
    found = replace(evidence(), obstacles=(other,))
    assert list(failed(found)) == ["kubelet-files"]
    assert failed(replace(found, node="no API server answers")) == {}


@pytest.mark.parametrize("component", ["kube-apiserver", "kube-scheduler"])
@pytest.mark.parametrize(("status", "outcome"), [("000", "fail"), ("500", "fail"), ("403", "unknown"), ("401", "unknown"), ("200", "pass")])
def test_a_component_that_is_not_healthy(component: str, status: str, outcome: str) -> None:
    found = evidence(components=CONTROL_PLANE)
    told = verdicts(replace(found, health={**found.health, component: Health(status, "[-]etcd failed")}))
    assert told[f"{component}-healthy"][0] == outcome
    assert [check for check, (ended, _) in told.items() if ended in ("fail", "unknown")] == (
        [] if status == "200" else [f"{component}-healthy"]
    )


def test_a_program_that_was_replaced() -> None:
    lines = node.answer()
    exe = node.b64("/usr/bin/kubelet")
    replaced = [
        line.replace(f" {exe}=", f" {node.b64('/usr/bin/kubelet (deleted)')}=") if line.startswith("process") else line for line in lines
    ]
    good = evidence()
    found = of_observation(parse("w1", replaced))
    made = replace(found, moments=good.moments, health=good.health, effective=good.effective, configuration=good.configuration, node=READY)
    assert list(failed(made)) == ["kubelet-binary"]


def test_a_node_that_could_not_be_read_is_one_unknown() -> None:
    assert verdicts(Evidence("w1", why_not="no answer within 60 s")) == {"looked-at": ("unknown", "no answer within 60 s")}


def test_without_the_api_its_answers_are_unknown_and_all_else_is_judged() -> None:
    away = "the API is away"
    found = replace(evidence(), effective={KUBELET: away}, configuration=away, node=away)
    told = verdicts(
        found, wanting(feature_gates={"A": True, "B": "absent"}, kubelet_config={"maxPods": 110}, eviction_hard="memory.available=100Mi")
    )
    assert {check for check, (outcome, _) in told.items() if outcome == "unknown"} == {
        "kubelet-settings",
        "eviction-thresholds",
        "node-ready",
    }
    # Gates are then compared with the files and the command line.
    assert told["kubelet-gates"] == ("fail", "kubelet: A is absent in its flags and files, wanted true")


PLAIN = {"style": "plain", "argv": (*node.PLAIN_ARGV[:1], "--v", "2", *node.PLAIN_ARGV[2:0:-1])}


def test_the_same_arguments_in_another_order_and_spelling_are_those_of_the_unit() -> None:
    assert verdicts(evidence(**PLAIN))["kubelet-arguments"] == ("pass", "4 arguments, the same as in its unit")


@pytest.mark.parametrize(("word", "outcome"), [(b"--node-ip=%i", "pass"), (b"%i", "unknown"), (b"$FROM_PAM", "unknown")])
def test_of_words_that_only_systemd_can_resolve(word: bytes, outcome: str) -> None:
    """A flag whose value is not known is not compared; any other such word may be any flags."""
    unit = node.PLAIN_UNIT.replace(b"--v=2", b"--v=2 " + word).replace(b"[Service]", b"[Service]\nPassEnvironment=FROM_PAM")
    found = evidence(style="plain", unit=unit, argv=(*node.PLAIN_ARGV, word.decode().replace("%i", "x").replace("$FROM_PAM", "--v=9")))
    assert verdicts(found)["kubelet-arguments"][0] == outcome


def test_without_the_api_a_file_that_is_newer_than_the_process_fails() -> None:
    found = replace(evidence(), configuration="the API is away")
    assert found.seen is not None and found.kubelet is not None
    path = "/var/lib/kubelet/config.yaml"
    started = found.seen.started_at(found.kubelet.process)
    files = {**found.seen.files, path: replace(found.seen.files[path], mtime=int(started) + 5)}
    newer = replace(found, kubelet=replace(found.kubelet, seen=replace(found.kubelet.seen, files=files)))
    assert list(failed(newer, wanting(feature_gates={"A": "absent"}))) == ["kubelet-configuration"]


def gate(enabled: bool) -> GateMetric:
    return GateMetric(**{**dict.fromkeys(GateMetric.__dataclass_fields__, ""), "enabled": enabled})


@pytest.mark.parametrize(
    ("wanted", "enabled", "problem"),
    [
        (True, True, None),
        (False, False, None),
        (True, False, "kubelet runs with A=false, wanted true"),
        (False, True, "kubelet runs with A=true, wanted false"),
        (True, None, "kubelet does not publish A"),
    ],
)
def test_gates_are_compared_with_the_metrics(wanted: bool, enabled: bool | None, problem: str | None) -> None:
    metrics = {} if enabled is None else {"A": gate(enabled)}
    told = failed(replace(evidence(), effective={KUBELET: metrics}), wanting(feature_gates={"A": wanted}))
    assert list(told) == (["kubelet-gates"] if problem else [])
    assert problem is None or problem in told["kubelet-gates"]


def test_a_gate_that_is_wanted_absent_must_be_set_nowhere() -> None:
    config = node.CONFIG + b"featureGates:\n  A: true\n"
    found = evidence(files={"/var/lib/kubelet/config.yaml": config}, configuration={**CONFIGURATION, "featureGates": {"A": True}})
    assert failed(found, wanting(feature_gates="A=absent")) == {"kubelet-gates": "kubelet: A=true is set, wanted absent"}
    apiserver = evidence(components={"kube-apiserver": (*APISERVER, "--feature-gates=A=false")})
    assert failed(apiserver, wanting(feature_gates="A=absent")) == {"kube-apiserver-gates": "kube-apiserver: A=false is set, wanted absent"}


def test_only_the_chosen_components_are_compared_with_the_gates() -> None:
    found = evidence(components={"kube-apiserver": (*APISERVER, "--feature-gates=A=false")})
    assert failed(found, wanting(feature_gates="A=absent", components="kubelet")) == {}


@pytest.mark.parametrize(
    ("data", "check", "why"),
    [
        ({"kubelet_config": {"maxPods": 200}}, "kubelet-settings", "kubelet runs with maxPods=110, wanted 200"),
        ({"kubelet_config": {"maxPodz": 200}}, "kubelet-settings", "maxPodz"),
        ({"eviction_hard": {"memory.available": "90Mi"}}, "eviction-thresholds", "evictionHard: memory.available is 100Mi, wanted 90Mi"),
        ({"eviction_soft": {"memory.available": "1Gi"}}, "eviction-thresholds", "evictionSoft: memory.available is (not set), wanted 1Gi"),
    ],
)
def test_what_the_inventory_wants_of_a_kubelet(data: dict[str, Any], check: str, why: str) -> None:
    told = failed(evidence(), wanting(**data))
    assert list(told) == [check] and why in told[check]


def test_priority_classes() -> None:
    """As the plan of deploys/priority_classes.py compares them."""
    desired = of_the_cluster([("w1", {"priority_classes": "web=1000"}.get)])
    for value, outcome, why in ((1000, "pass", "web"), (5, "fail", "web: value differs (it is 5, wanted 1000)")):
        live = {"web": {"metadata": {"name": "web", "managedFields": []}, "value": value}}
        found = judge.cluster(desired, ClusterFound(ObservedClasses(classes=live)))
        assert [one.outcome for one in found] == [outcome, *["skip"] * 4]
        assert (found[0].check, found[0].why) == ("priority-classes", why)


def test_workloads_and_their_class() -> None:
    data = {"workloads": {"shop/deployment/web": "web", "shop/deployment/db": "web"}}
    web = {"metadata": {"namespace": "shop", "name": "web"}, "spec": {"template": {"spec": {"priorityClassName": "batch"}}}}
    told = judge.cluster(of_the_cluster([("w1", data.get)]), ClusterFound(ObservedClasses({"Deployment": [web]})))[1]
    assert (told.outcome, told.why) == ("fail", "shop/deployment/web: its class is batch, wanted web; shop/deployment/db: does not exist")


def test_the_cluster_without_an_api_or_without_desired_objects() -> None:
    desired = of_the_cluster([("w1", {"priority_classes": "web=5"}.get)])
    assert desired.classes is not None and desired.budgets is None
    assert [one.outcome for one in judge.cluster(desired, ClusterFound("the API is away"))] == ["unknown", *["skip"] * 4]
    assert {one.outcome for one in judge.cluster(ClusterDesired(), ClusterFound())} == {"skip"}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}, None),
        ({"maxUnavailable": 2, "selector": {"matchLabels": {"app": "web"}}}, "shop/web: maxUnavailable differs"),
        ({"minAvailable": 1, "selector": {"matchLabels": {"app": "old"}}}, "shop/web: selector, maxUnavailable differ"),
        (None, "shop/web: does not exist"),
    ],
)
def test_disruption_budgets(spec: dict[str, Any] | None, why: str | None) -> None:
    """As the plan of deploys/disruption_budgets.py compares them."""
    data = {"disruption_budgets": {"shop/web": {"workload": "deployment/web", "max_unavailable": 1}, "shop/old": "absent"}}
    web = {"metadata": {"namespace": "shop", "name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}}
    budgets = [] if spec is None else [{"metadata": {"namespace": "shop", "name": "web", "uid": "u"}, "spec": spec}]
    live = DisruptionObjects({"Deployment": [web], "PodDisruptionBudget": budgets})
    told = judge.cluster(of_the_cluster([("w1", data.get)]), ClusterFound(budgets=live))[2]
    assert (told.check, told.outcome, why is None or told.why) == ("disruption-budgets", "fail" if why else "pass", why or True)


def test_a_budget_whose_workload_is_gone_and_one_that_should_be() -> None:
    data = {"disruption_budgets": {"shop/web": {"workload": "deployment/web", "max_unavailable": 1}, "shop/old": "absent"}}
    budgets = [{"metadata": {"namespace": "shop", "name": name, "uid": name}, "spec": {}} for name in ("web", "old")]
    told = judge.cluster(of_the_cluster([("w1", data.get)]), ClusterFound(budgets=DisruptionObjects({"PodDisruptionBudget": budgets})))[2]
    assert told.why == "shop/web: Deployment shop/web does not exist; that namespace has none; shop/old: exists, wanted absent"


@pytest.mark.parametrize(("maximum", "why"), [(10, None), (9, "shop/web: maxReplicas differs")])
def test_autoscalers(maximum: int, why: str | None) -> None:
    """`only` chooses hosts here."""
    data = {"autoscalers": {"shop/deployment/web": {"max": 10, "cpu": "50%"}}, "only": "w1"}
    live = {"HorizontalPodAutoscaler": [hpa(maximum=maximum)]}
    told = judge.cluster(of_the_cluster([("w1", data.get)]), ClusterFound(scaled=live))[3]
    assert (told.check, told.outcome, why is None or told.why) == ("autoscalers", "fail" if why else "pass", why or True)


@pytest.mark.parametrize(
    ("outcomes", "code"), [([], 0), (["pass", "skip"], 0), (["pass", "unknown"], 1), (["fail", "pass"], 2), (["unknown", "fail"], 2)]
)
def test_the_exit_status(outcomes: list[Any], code: int) -> None:
    assert exit_code([Result("w1", "x", outcome, "") for outcome in outcomes]) == code


def test_what_a_check_needs_comes_before_it() -> None:
    before: list[str] = []
    for check in CHECKS:
        assert set(check.needs) <= set(before), check.name
        before.append(check.name)


def test_a_gate_in_addition_to_the_inventory() -> None:
    asked = replace(wanting(feature_gates="A=absent"), more_gates={KUBELET: {"B": True}})
    told = failed(replace(evidence(), effective={KUBELET: {"B": gate(False)}}), asked)
    assert told == {"kubelet-gates": "kubelet runs with B=false, wanted true"}


@pytest.mark.parametrize(
    ("flags", "outcome"), [((), "unknown"), (("--feature-gates=A=false",), "pass"), (("--feature-gates=A=true",), "fail")]
)
def test_without_metrics_a_gate_that_is_set_nowhere_is_not_known_to_be_off(flags: tuple[str, ...], outcome: str) -> None:
    found = evidence(components={"kube-apiserver": (*APISERVER, *flags)})
    told = verdicts(
        replace(found, effective={**found.effective, "kube-apiserver": "no tunnel"}),
        wanting(feature_gates={"A": False}, components="kube-apiserver"),
    )
    assert told["kube-apiserver-gates"][0] == outcome, told["kube-apiserver-gates"]


def test_without_its_api_server_the_rest_of_a_control_plane_is_not_judged() -> None:
    found = evidence(components=CONTROL_PLANE)
    told = verdicts(replace(found, health={**found.health, "kube-apiserver": Health("000", ""), "kube-scheduler": Health("000", "")}))
    assert told["kube-scheduler-healthy"] == ("skip", "kube-apiserver-healthy must pass first")
    assert told["kube-scheduler-gates"] == ("skip", "kube-scheduler-healthy must pass first")


CONFIG = "/etc/kubernetes/s.yaml"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"control_plane_flags": {"kube-scheduler": {"v": 4}}}, "kube-scheduler: its arguments have --v=2, wanted --v=4"),
        ({"control_plane_flags": {"kube-scheduler": {"v": "absent"}}}, "its arguments have --v=2, wanted no --v"),
        ({"control_plane_flags": {"kube-controller-manager": {"v": 2}}}, "no kube-controller-manager runs on this node"),
        ({"control_plane_files": {CONFIG: {"content": "b\n"}}}, f"{CONFIG} has another content"),
        ({"control_plane_flags": {"kube-scheduler": {"v": 2}}, "control_plane_files": {CONFIG: {"content": "a\n"}}}, ""),
    ],
)
def test_flags_and_files_of_the_control_plane(data: dict[str, Any], why: str) -> None:
    argv = ("kube-scheduler", "--v=2", f"--config={CONFIG}")
    found = evidence(components={"kube-apiserver": APISERVER, "kube-scheduler": argv}, extra=[node.file_line(CONFIG, b"a\n")])
    outcome, told = verdicts(found, wanting(**data))["control-plane-flags"]
    assert (outcome, why in told) == ("fail" if why else "pass", True)


def test_a_program_gets_the_results_that_apply_with_the_rules_of_their_findings() -> None:
    results = [
        Result("w1", "kubelet-healthy", "pass", "200"),
        Result("w1", "resources", "skip", "no limit", applies=False),
        Result("w1", "daemon-reload", "fail", "edited", causes=(NodeRule.UNIT,)),
    ]
    made = report(results, ["w1: process 7 ..."]).model_dump(mode="json")
    assert [(one["check"], one["outcome"], one["causes"]) for one in made["results"]] == [
        ("kubelet-healthy", "pass", []),
        ("daemon-reload", "fail", [str(NodeRule.UNIT)]),
    ]
    assert made["ignored"] == ["w1: process 7 ..."]


@pytest.mark.parametrize(
    ("day", "outcome", "why"),
    [(0, "pass", "wake it before 2027-10-23"), (310, "fail", "wake it before 2027-10-23"), (330, "fail", "should have been awake since")],
)
def test_machines_that_are_off(day: int, outcome: str, why: str) -> None:
    now = OFF + timedelta(days=day)
    found = sleeping.findings([sleeper(marked(Ends(OFF, OFF + timedelta(days=365))))], now, 36, {})
    told = judge.cluster(ClusterDesired(), ClusterFound(asleep=found))[4]
    assert (told.check, told.outcome, told.causes) == ("asleep", outcome, () if outcome == "pass" else (SleepRule.CERTIFICATE,))
    assert why in told.why and "--data power_on=w1" in told.why
