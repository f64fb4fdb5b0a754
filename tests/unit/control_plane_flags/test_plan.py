"""Plans of control-plane flags: what is written, what is asked, what is refused; and that a node that has them is left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roles.control_plane_flags import ControlPlaneFlags, _not_lasting, differing, differing_files, plan_flags, unmet, unmet_files
from roles.control_plane_flags.dangers import danger
from roles.engine.control_plane import RULES, ask_flags, beyond_the_trick
from roles.engine.kubeadm_config import ARGUMENTS, VOLUMES, StoredSettings
from roles.engine.node import Observation
from roles.engine.node_changes import DesiredByHost, NodeStep
from roles.engine.node_changes.capability import _pod_files
from roles.engine.node_changes.node_plan import question
from roles.engine.node_changes.step import arrange
from roles.engine.proof import Proof
from roles.engine.runs import Pace
from roles.engine.transaction import Refusal
from roles.engine.transaction.model import ABSENT
from tests.unit.control_plane_flags.world import API, ARGV, MANAGER, SCHEDULER, judged, plan, seen, wanted
from tests.unit.node import node
from tests.unit.node.node import parse
from tests.unit.node.surveyed import surveyed

PATH = "/etc/kubernetes/scheduler-config.yaml"
CONFIG = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nclientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf}\n"
PROFILE = {"control_plane_flags": {SCHEDULER: {"config": PATH}}, "control_plane_files": {PATH: {"content": CONFIG, "mode": "0600"}}}
WINDOW = {"control_plane_flags": {MANAGER: {"horizontal-pod-autoscaler-downscale-stabilization": "2m"}}}


def test_one_flag_of_one_component() -> None:
    (one,) = plan(WINDOW).planned
    assert one.component == MANAGER and one.change is not None
    flag = "--horizontal-pod-autoscaler-downscale-stabilization=2m"
    assert one.change.new_argv == (*ARGV[MANAGER], flag) and one.change.summary == flag
    assert one.flags == {flag[2:-3]: ("2m",)} and one.lasting == {(ARGUMENTS, flag[2:-3]): ["2m"]}


def changed(found: Any) -> tuple[Any, Any, Any]:
    """The one component that changes, its file, and its manifest."""
    (one,) = found.changing
    assert one.change is not None
    return one, *one.change.files


def test_a_scheduler_profile_is_placed_before_the_manifest_that_mounts_it() -> None:
    one, file, manifest = changed(plan(PROFILE))
    assert (file.path, file.before, file.after, file.mode) == (PATH, None, CONFIG.encode(), 0o600)
    assert manifest.after is not None and f"path: {PATH}\n      type: File".encode() in manifest.after
    assert one.lasting[VOLUMES, PATH] is True and one.flags == {"config": (PATH,)}
    asked = question(plan(PROFILE))
    assert f"--version --kubeconfig=/etc/kubernetes/scheduler.conf --config={PATH}; answer {SCHEDULER} $?" in asked
    assert "--config=/proc/self/fd/3/0 --secure-port=0 --master=https://127.0.0.1:1 --write-config-to=/dev/null 3<" in asked


def with_profile(content: bytes = CONFIG.encode(), argv: tuple[str, ...] = (*ARGV[SCHEDULER], f"--config={PATH}")) -> Observation:
    (one,) = plan(PROFILE).planned
    assert one.change is not None and one.change.files[1].after is not None
    return seen({PATH: content}, {f"{SCHEDULER}.yaml": one.change.files[1].after}, scheduler=argv)


def test_a_second_run_finds_nothing_to_do() -> None:
    has = replace_mode(with_profile(), 0o600)
    assert judged(PROFILE, has).changing == [] and judged(PROFILE, has).refusals == ()


def replace_mode(looked: Observation, mode: int, mtime: int = 0) -> Observation:
    files = {**looked.files, PATH: replace(looked.files[PATH], mode=mode, mtime=mtime)}
    return replace(looked, files=files)


def test_another_content_gives_another_pod() -> None:
    has = replace_mode(with_profile(b"old\n"), 0o600)
    one, file, manifest = changed(plan(PROFILE, has))
    assert (file.before, file.after) == (b"old\n", CONFIG.encode())
    assert manifest.after is not None and b"  annotations:\n    daytwo/files: " in manifest.after
    assert one.change.new_argv == one.change.old_argv and one.flags == {"config": (PATH,)}


def test_a_file_that_the_process_has_not_read() -> None:
    has = replace_mode(with_profile(), 0o600, mtime=2**40)
    (told,) = judged(PROFILE, has).refusals
    assert "was written after kube-scheduler started" in str(told)
    (why,) = unmet_files(has, plan(PROFILE, has).components, wanted(PROFILE))
    assert why.path == PATH


def test_a_process_that_has_not_what_its_manifest_has() -> None:
    has = replace_mode(with_profile(argv=ARGV[SCHEDULER]), 0o600)
    (told,) = judged(PROFILE, has).refusals
    assert "its arguments have no --config, wanted --config=" in str(told)
    (found,) = unmet(plan(PROFILE, has).components[SCHEDULER], {"config": (PATH,)})
    assert found.where == "its arguments"


def test_mode_and_owner_of_a_file_that_exists_are_not_changed() -> None:
    with pytest.raises(Refusal, match="exists and has mode 0644, wanted 0600"):
        plan(PROFILE, with_profile())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"control_plane_files": PROFILE["control_plane_files"]}, "no flag of a component names it"),
        ({**PROFILE, "control_plane_files": {PATH: "absent"}}, "would be removed, and --config of kube-scheduler names it"),
        ({**PROFILE, "control_plane_flags": {SCHEDULER: {"config": PATH}, API: {"x": PATH}}}, "for kube-apiserver and kube-scheduler"),
        ({**PROFILE, "control_plane_files": {PATH: {"content": CONFIG.partition("client")[0]}}}, "names no kubeconfig, and with --config"),
    ],
)
def test_files_that_do_not_fit_the_flags(data: dict[str, Any], words: str) -> None:
    with pytest.raises(Refusal, match=words):
        plan(data)


def test_a_file_and_its_mount_are_taken_out_together() -> None:
    data = {"control_plane_flags": {SCHEDULER: {"config": "absent"}}, "control_plane_files": {PATH: "absent"}}
    one, file, manifest = changed(plan(data, with_profile()))
    assert file.after is None and file.hidden and manifest.after == node.manifest(*ARGV[SCHEDULER])
    assert one.lasting == {(ARGUMENTS, "config"): None, (VOLUMES, PATH): None}


TOKENS = "/etc/kubernetes/audit/tokens.csv"
BY_DIRECTORY = b"""    volumeMounts:
    - mountPath: /etc/kubernetes/audit
      name: audit
  hostNetwork: true
  volumes:
  - hostPath:
      path: /etc/kubernetes/audit
    name: audit
"""


def with_tokens(*more: str) -> Observation:
    flag = f"--token-auth-file={TOKENS}"
    manifest = node.manifest(API, *more, flag).replace(b"  hostNetwork: true\n", BY_DIRECTORY)
    return seen({TOKENS: b"x,admin,1\n"}, {"kube-apiserver.yaml": manifest}, apiserver=(API, *more, flag))


def test_a_file_that_is_in_the_pod_by_a_directory_is_removed_with_its_flag() -> None:
    """The mount of the directory stays. Before the change the checks say that the file is there, after it that it is not."""
    data = {"control_plane_flags": {API: {"token-auth-file": "absent"}}, "control_plane_files": {TOKENS: "absent"}}
    looked = with_tokens("--authorization-mode=Node,RBAC")
    one, file, manifest = changed(plan(data, looked))
    assert (file.path, file.after) == (TOKENS, None) and b"token-auth-file" not in (manifest.after or b"")
    assert b"path: /etc/kubernetes/audit\n" in (manifest.after or b"") and f"file {TOKENS}" in one.change.summary
    assert str(unmet_files(looked, {}, wanted(data))[0]) == f"{TOKENS} exists, wanted absent" and not unmet_files(
        seen({TOKENS: None}), {}, wanted(data)
    )


def test_a_file_that_is_not_there_and_that_nobody_reads_needs_no_change() -> None:
    assert not plan({"control_plane_files": {TOKENS: "absent"}}).changing


@pytest.mark.parametrize("path", [TOKENS, "/etc/kubernetes/audit/other.csv"])
def test_a_file_of_which_nobody_knows_who_needs_it_is_refused_and_not_left_in_silence(path: str) -> None:
    data = {"control_plane_files": {path: "absent"}}
    looked = seen({path: b"x"}) if path == TOKENS else seen({path: b"x", TOKENS: b"y"})
    with pytest.raises(Refusal, match="would be removed, and no flag of a component names it"):
        plan(data, looked)


def test_a_file_that_another_file_of_the_node_names_is_not_removed() -> None:
    data = {"control_plane_flags": {API: {"token-auth-file": "absent"}}, "control_plane_files": {TOKENS: "absent"}}
    other = "/etc/kubernetes/webhook.yaml"
    looked = with_tokens()
    looked = replace(looked, files={**looked.files, other: replace(looked.files[TOKENS], path=other, data=f"tokens: {TOKENS}".encode())})
    with pytest.raises(Refusal, match=r"would be removed, and /etc/kubernetes/webhook\.yaml names it"):
        plan(data, looked)


def test_what_is_proven_in_the_container() -> None:
    """Also a change without a flag of its own; and in an undo, a file of somebody else that stays on the node and is no longer mounted."""
    one, file, manifest = changed(plan(PROFILE))
    proven = {PATH: file.after_sha256, manifest.path: manifest.after_sha256}
    assert _pod_files(one) == proven == _pod_files(replace(one, flags={}))
    back = replace(manifest, before=manifest.after, after=manifest.before)
    undone = replace(one, change=replace(one.change, files=(replace(file, before=file.after, after=b"theirs"), back)))
    assert _pod_files(undone) == {PATH: ABSENT, manifest.path: back.after_sha256}
    (flag,) = plan(WINDOW).planned
    assert list(_pod_files(flag)) == [f"/etc/kubernetes/manifests/{MANAGER}.yaml"] and _pod_files(replace(flag, flags={})) == {}


def test_secrets_are_not_shown() -> None:
    path = "/etc/kubernetes/encryption.yaml"
    data = {
        "control_plane_flags": {API: {"encryption-provider-config": path}},
        "control_plane_files": {path: {"content": "keys: c2VjcmV0\n"}},
        "allow_flags": "encryption-provider-config",
    }
    (one,) = plan(data).changing
    assert one.change is not None and one.change.files[0].hidden
    assert "c2VjcmV0" not in one.change.files[0].diff() + question(plan(data)) + one.change.summary
    assert "encryption-provider-config" not in question(plan(data)).partition(f"answer {API} $?")[2]


# ---- the binaries


def test_an_unknown_flag_is_refused_in_the_words_of_the_binary() -> None:
    listed = {MANAGER: "      --horizontal-pod-autoscaler-downscale-stabilization duration   The period\n"}
    data = {"control_plane_flags": {MANAGER: {"horizontal-pod-autoscaler-downscale-stabilisation": "2m"}}}
    said = "unknown flag: --horizontal-pod-autoscaler-downscale-stabilisation"
    (told,) = judged(data, against={MANAGER: said}, flags=listed).refusals
    assert f"refuses --horizontal-pod-autoscaler-downscale-stabilisation=2m: {said}; did you mean --horizontal-pod-" in str(told)
    (line,) = Refusal.texts([told])
    assert (
        line
        == "--horizontal-pod-autoscaler-downscale-stabilization? You wrote --horizontal-pod-autoscaler-downscale-stabilisation. Refused by kube-controller-manager on cp1"
    )


def test_a_rule_of_the_binary_counts_if_the_present_arguments_keep_it() -> None:
    rule = {f"{MANAGER}{RULES}": "a rule"}
    (told,) = judged(WINDOW, against=rule).refusals
    assert "a rule; correct the data" in str(told)
    already = judged(WINDOW, against=rule, present=rule)
    assert already.refusals == () and "could not be asked about its rules" in already.warnings[-1]


def test_what_the_question_itself_provokes_is_no_objection() -> None:
    trick = "--etcd-servers-overrides invalid, must be of format: group/resource#servers, where servers are URLs, semicolon separated"
    tokens = "--service-account-signing-key-file, --service-account-issuer, and --api-audiences should be specified together"
    assert beyond_the_trick(f"[{trick}, {tokens}]") == beyond_the_trick('"daytwo-asks" is not in the list of known controllers') == ""
    assert beyond_the_trick(f"[--goaway-chance is wrong, {trick}, {tokens}]") == "[--goaway-chance is wrong]"
    assert beyond_the_trick(f"[{trick}, one, {tokens}, two]") == "[one, two]"


def test_a_flag_without_a_value_does_not_start_the_component() -> None:
    component = plan(WINDOW).components[MANAGER]
    asked = ask_flags(component, (*component.argv, "--last"), {}).splitlines()
    assert " --version --leader-elect=true --last;" in asked[0]


def test_several_values_of_a_flag_that_has_one() -> None:
    data = {"control_plane_flags": {MANAGER: {"v": [1, 2], "controllers": ["*", "x"]}}, "allow_flags": "controllers"}
    listed = {MANAGER: "  -v, --v Level    number\n      --controllers strings   A list\n"}
    made = judged(data, flags=listed)
    (told,) = made.refusals
    assert "--v has one value (Level): of several the last one counts" in str(told)
    assert made.planned[0].lasting[ARGUMENTS, "controllers"] == ["*,x"]


@pytest.mark.parametrize(("minor", "issuers", "warned"), [(32, "ba", True), (36, "ba", False), (32, "ab", False), (32, "a", False)])
def test_an_order_that_an_older_kubeadm_does_not_keep(minor: int, issuers: str, warned: bool) -> None:
    data = {"control_plane_flags": {API: {"service-account-issuer": list(issuers)}}, "allow_flags": "service-account-issuer"}
    made = judged(data, flags={API: "      --service-account-issuer stringArray                Identifier\n"})
    component = made.components[API]
    made = replace(made, components={API: replace(component, process=replace(component.process, version=f"v1.{minor}.5"))})
    notes = _not_lasting(StoredSettings(), [made])
    assert [note for note in notes if "sorts the values" in note and "gives --service-account-issuer=a, --service" in note] == notes
    assert bool(notes) is warned


def test_a_deprecated_flag_is_named() -> None:
    said = {MANAGER: ("--horizontal-pod-autoscaler-downscale-stabilization has been deprecated, use x",)}
    assert "has been deprecated, use x" in judged(WINDOW, deprecated=said).warnings[-1]


# ---- consent


def test_a_dangerous_flag_needs_consent_by_its_name() -> None:
    data = {"control_plane_flags": {API: {"anonymous-auth": False}}}
    (told,) = judged(data).refusals
    assert "requests without credentials" in str(told) and "--data allow_flags=anonymous-auth" in str(told)
    assert judged({**data, "allow_flags": "anonymous-auth"}).refusals == ()
    assert judged({**data, "allow_flags": "tls-min-version"}).refusals != ()


@pytest.mark.parametrize(
    ("component", "name", "before", "after", "asks"),
    [
        (MANAGER, "node-monitor-grace-period", None, ("2s",), True),
        (MANAGER, "node-monitor-grace-period", None, ("1m",), False),
        (MANAGER, "node-monitor-grace-period", ("5m",), ("1m",), True),
        (MANAGER, "node-monitor-grace-period", ("5m",), None, True),
        (MANAGER, "node-monitor-grace-period", ("2s",), None, False),
        (MANAGER, "node-monitor-grace-period", ("odd",), ("odder",), True),
        (MANAGER, "node-monitor-grace-period", None, ("nan",), True),
        (MANAGER, "node-eviction-rate", None, ("1",), True),
        (MANAGER, "node-eviction-rate", None, ("0",), False),
        (MANAGER, "secondary-node-eviction-rate", ("0.1",), ("1e999999999",), True),
        (MANAGER, "unhealthy-zone-threshold", None, ("0.9",), True),
        (MANAGER, "unhealthy-zone-threshold", None, ("0.5",), False),
        (MANAGER, "large-cluster-size-threshold", None, ("10",), True),
        (MANAGER, "use-service-account-credentials", ("true",), ("false",), True),
        (MANAGER, "use-service-account-credentials", ("true",), None, True),
        (API, "max-requests-inflight", None, ("40",), True),
        (API, "max-requests-inflight", None, ("800",), False),
        (API, "max-mutating-requests-inflight", ("500",), ("300", "400"), True),
        (API, "default-not-ready-toleration-seconds", None, ("0",), True),
        (API, "default-unreachable-toleration-seconds", None, ("600",), False),
        (MANAGER, "max-requests-inflight", None, ("40",), True),
        (SCHEDULER, "node-eviction-rate", None, ("1",), True),
    ],
)
def test_what_can_evict_or_stop_everything_needs_consent(
    component: str, name: str, before: tuple[str, ...] | None, after: tuple[str, ...] | None, asks: bool
) -> None:
    assert (danger(component, name, before, after) is not None) is asks


def test_a_value_that_stays_needs_none() -> None:
    assert judged({"control_plane_flags": {API: {"authorization-mode": ["Node", "RBAC"]}}}).refusals == ()


def test_another_content_of_a_dangerous_file_needs_consent_too() -> None:
    path = "/etc/kubernetes/authn.yaml"
    argv = (*ARGV[API], f"--authentication-config={path}")
    data = {"control_plane_files": {path: {"content": "new\n"}}}
    (told,) = judged(data, seen({path: b"old\n"}, apiserver=argv)).refusals
    assert f"{path}, which --authentication-config names" in str(told)


def test_values_that_would_differ_between_api_servers() -> None:
    data = {"control_plane_flags": {API: {"event-ttl": "2h", "v": 4}}}
    made = plan(data)
    other = plan(WINDOW).components[API]
    (told,) = differing([made], {"cp1": made.components[API], "cp2": other})
    assert told.startswith("WARNING --event-ttl will differ between the API servers (cp1: --event-ttl=2h, cp2: no --event-ttl)")
    assert differing([made], {"cp1": made.components[API]}) == []


def test_a_file_that_may_differ_between_api_servers() -> None:
    """It is named by a flag that they must share; the flag itself is the same."""
    path = "/etc/kubernetes/admission.yaml"
    data = {"control_plane_files": {path: {"content": "new\n"}}}
    looked = seen({path: b"old\n"}, apiserver=(*ARGV[API], f"--admission-control-config-file={path}"))
    made = plan(data, looked)
    (told,) = differing_files([made], ["cp1", "cp2"])
    assert f"{path} (--admission-control-config-file) changes" in told and ", cp2: not in this run)" in told
    assert differing_files([made, replace(made, host="cp2")], ["cp1", "cp2"]) == []
    other = replace(plan({"control_plane_files": {path: {"content": "other\n"}}}, looked), host="cp2")
    (told,) = differing_files([made, other], ["cp1", "cp2"])
    assert "not in this run" not in told and told.count("sha256 ") == 2
    # What does not change in this run, or is each server's own, is no matter of it.
    same = plan({"control_plane_files": {path: {"content": "old\n"}}}, looked)
    assert differing_files([same], ["cp1", "cp2"]) == []
    audit = {"control_plane_flags": {API: {"audit-policy-file": path}}, "control_plane_files": {path: {"content": "x"}}}
    assert differing_files([plan(audit)], ["cp1", "cp2"]) == []


def test_api_servers_come_first_and_each_alone() -> None:
    """Nodes in the inventory's order; the others follow once all API servers are confirmed."""
    data = {"control_plane_flags": {SCHEDULER: {"v": 4}, API: {"v": 4}}}
    plans = [replace(plan(data), host=host) for host in ("cp2", "cp1", "cp3")]
    plans = [
        replace(made, planned=tuple(replace(one, change=replace(one.change, node=made.host)) for one in made.planned if one.change))
        for made in plans
    ]
    flags = ControlPlaneFlags(DesiredByHost({}, {}))
    changing, on = flags.order(None, plans)  # type: ignore[arg-type]
    steps = [NodeStep(one.change, lambda: None, lambda status: Proof("")) for one in changing if one.change]
    stages = arrange(steps, {"cp1", "cp2", "cp3"}, Pace("3"), on)
    assert [[(step.change.node, step.change.component) for step in stage.steps] for stage in stages] == [
        [(host, component)] for component in (API, SCHEDULER) for host in ("cp2", "cp1", "cp3")
    ]
    assert all(stage.at_once == 1 for stage in stages)


def test_a_worker_has_nothing_to_change() -> None:
    assert plan_flags("r1", surveyed(parse("w1", node.answer())), wanted(WINDOW)).planned == ()
