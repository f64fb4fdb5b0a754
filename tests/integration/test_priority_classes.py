"""PriorityClasses and their workloads on a real cluster: made, changed, refused, replaced, given, pruned; and each way the API fails."""

from __future__ import annotations

import base64
import contextlib
import datetime
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.integration import operator
from tests.integration.operator import MANIFESTS, Outcome, Started, data, pyinfra, refused, run_of, wait_for
from tests.lab import Lab, images

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("forgotten")]

PKI = "/etc/kubernetes/pki"
KINDS = ("Deployment", "StatefulSet", "DaemonSet")
# A label on every pod that is made here.
MINE = "t-mine"
SSHD = "/etc/ssh/sshd_config.d/00-daytwo-test.conf"


def run(*arguments: str, dry: bool = False, **values: Any) -> Outcome:
    """The deploy; values that are no text go as JSON."""
    words = data(**{key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()})
    return pyinfra("priority_classes", *words, *arguments, "--dry" if dry else "-y")


def done(told: Outcome, name: str, outcome: str) -> str:
    """The object's row in the table at the end."""
    rows = [line for line in told.out.splitlines() if re.match(rf"{re.escape(name)}  ", line)]
    assert rows and re.search(rf"  {outcome}  ", rows[-1]), told.all
    return rows[-1]


def api_refuses(lab: Lab, words: str, *arguments: str, manifest: dict[str, Any]) -> None:
    """kubectl with the lab's admin rights gets a refusal from the API server itself, with these words."""
    command = " ".join(["kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", *arguments, "-f -"])
    told = lab.run(lab.control_planes[0], f"{command} 2>&1", input=json.dumps(manifest), check=False)
    assert told.returncode != 0 and words in told.stdout, told.stdout


def class_manifest(name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, **fields}


def get(lab: Lab, *what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.kubectl("get", *what, "-o", "json", "--show-managed-fields"))
    return found


def classes(lab: Lab) -> dict[str, tuple[str, int, bool]]:
    """UID, value and default of every class."""
    return {
        item["metadata"]["name"]: (item["metadata"]["uid"], item.get("value", 0), item.get("globalDefault", False))
        for item in get(lab, "priorityclasses")["items"]
    }


def workload(lab: Lab, kind: str, name: str, priority: str = "", **pod: Any) -> str:
    """A working workload of two pods (a DaemonSet: one on each worker), made by client-side apply; its key in the data."""
    labels = {"app": name, MINE: "yes"}
    spec: dict[str, Any] = {
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "app", "image": f"{images.REPOSITORY}/app:1", "imagePullPolicy": "Never"}],
        **({"priorityClassName": priority} if priority else {}),
        **pod,
    }
    item: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }
    if kind != "DaemonSet":
        item["spec"]["replicas"] = 2
    if kind == "StatefulSet":
        item["spec"]["serviceName"] = name
    lab.kubectl("apply", "-f", "-", input=json.dumps(item))
    lab.kubectl("rollout", "status", f"{kind.lower()}/{name}", "--timeout=280s")
    return f"default/{kind.lower()}/{name}"


def pods(lab: Lab, name: str) -> dict[str, tuple[str, int]]:
    """Class and number of all pods of a workload, by their UID; those that are ending too: a deploy that is done leaves none."""
    items = get(lab, "pods", "-n", "default", "-l", f"app={name}")["items"]
    return {item["metadata"]["uid"]: (item["spec"].get("priorityClassName", ""), item["spec"]["priority"]) for item in items}


@pytest.fixture(autouse=True)
def as_found(lab: Lab) -> Iterator[None]:
    """Whatever a test makes is gone after it."""
    before = classes(lab)
    yield
    lab.kubectl("delete", ",".join(KINDS).lower(), "t-web", "-n", "default", "--wait")
    lab.kubectl("delete", "resourcequota", "t-quota", "-n", "default", "--wait")
    lab.kubectl("delete", "pods", "-n", "default", "-l", MINE, "--now", "--wait")
    if new := sorted(set(classes(lab)) - set(before)):
        lab.kubectl("delete", "priorityclass", *new)
    wait_for(lambda: not get(lab, "pods", "-n", "default", "-l", MINE)["items"], "the test's pods to be gone")
    assert classes(lab) == before


# ---- classes


def test_created_as_wanted_and_changed(lab: Lab) -> None:
    wanted = {"t-high": {"value": 1000, "description": "first", "labels": {"team": "shop"}}, "t-low": -10}
    told = run(priority_classes=wanted, dry=True)
    assert told.code == 0 and "+value: 1000" in told.out, told.all
    assert "t-high" not in classes(lab), "a dry run makes nothing"

    told = run(priority_classes=wanted).ended(0)
    assert "field manager daytwo" in done(told, "PriorityClass t-high", "done")
    found = get(lab, "priorityclass", "t-high")
    assert (found["value"], found["description"], found["metadata"]["labels"]) == (1000, "first", {"team": "shop"})
    assert [(entry["manager"], entry["operation"]) for entry in found["metadata"]["managedFields"]] == [("daytwo", "Apply")]

    again = run(priority_classes=wanted)
    assert again.code == 0 and "0 changes of the cluster's objects" in again.out, again.all
    done(again, "PriorityClass t-high", "no change")
    assert get(lab, "priorityclass", "t-high")["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]

    wanted["t-high"] = {"value": 1000, "description": "second"}
    told = run(priority_classes=wanted)
    assert told.code == 0 and "-description: first" in told.out and "+description: second" in told.out, told.all
    changed = get(lab, "priorityclass", "t-high")
    assert changed["description"] == "second" and "labels" not in changed["metadata"], "what is wanted no more goes"
    assert changed["metadata"]["uid"] == found["metadata"]["uid"]


def test_a_record_is_kept(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert run(priority_classes="t-high=5").code == 0
    (record,) = (tmp_path / "daytwo/runs").glob("*.jsonl")
    events = [json.loads(line) for line in record.read_text().splitlines()]
    assert [event["event"] for event in events] == ["run", "begin", "plan", "end", "end-of-run"]
    assert events[2]["object"] == "PriorityClass t-high" and {"path": ["value"], "before": None, "after": 5} in events[2]["fields"]
    assert events[3]["outcome"] == "done" and "read back" in events[3]["proof"]


def test_what_cannot_change_is_refused_with_its_users_and_replaced_with_consent(lab: Lab) -> None:
    assert run(priority_classes="t-high=1000").code == 0
    workload(lab, "Deployment", "t-web", "t-high")
    before, users = classes(lab)["t-high"], pods(lab, "t-web")
    names = [item["metadata"]["name"] for item in get(lab, "pods", "-n", "default", "-l", "app=t-web")["items"]]

    told = run(priority_classes="t-high=2000")
    refused(told, "value is 1000 and cannot become 2000", "Deployment default/t-web", *names, "replace=true")
    assert classes(lab)["t-high"] == before

    changed = class_manifest("t-high", value=2000)
    api_refuses(lab, "may not be changed in an update", "apply --server-side --force-conflicts", manifest=changed)
    assert classes(lab)["t-high"] == before

    told = run(priority_classes="t-high=2000", replace="true").ended(0)
    assert "keep the old number" in told.out and all(name in told.out for name in names)
    done(told, "PriorityClass t-high", "done")
    uid, value, _ = classes(lab)["t-high"]
    assert value == 2000 and uid != before[0]
    assert pods(lab, "t-web") == users and {number for _, number in users.values()} == {1000}
    assert "0 changes" in run(priority_classes="t-high=2000").out


def test_a_foreign_default_is_named(lab: Lab) -> None:
    lab.kubectl("create", "priorityclass", "t-theirs", "--value=7", "--global-default=true")
    wanted = {"t-ours": {"value": 1, "globalDefault": True}}
    refused(run(priority_classes=wanted), "globalDefault is set on 't-theirs' in the cluster already (value 7, set by kubectl-create")
    assert "t-ours" not in classes(lab)
    api_refuses(lab, "already marked as default", "create", manifest=class_manifest("t-ours", value=1, globalDefault=True))


def test_the_default_is_handed_over(lab: Lab) -> None:
    assert run(priority_classes={"t-a": {"value": 1, "globalDefault": True}}).code == 0
    run(priority_classes={"t-b": {"value": 2, "globalDefault": True}, "t-a": {"value": 1, "globalDefault": False}}).ended(0)
    found = classes(lab)
    assert not found["t-a"][2] and found["t-b"][2]


def test_fields_of_another_manager(lab: Lab) -> None:
    assert run(priority_classes={"t-high": {"value": 5, "description": "ours"}}).code == 0
    lab.kubectl("patch", "priorityclass", "t-high", "--field-manager=someone", "-p", '{"description": "theirs"}')
    wanted = {"t-high": {"value": 5, "description": "ours"}}
    refused(run(priority_classes=wanted), ".description is owned by the field manager 'someone'", "force=true")
    assert get(lab, "priorityclass", "t-high")["description"] == "theirs"
    told = run(priority_classes=wanted, force="true")
    assert told.code == 0 and get(lab, "priorityclass", "t-high")["description"] == "ours", told.all


@pytest.mark.parametrize(
    ("name", "fields", "words", "theirs"),
    [
        ("system-mine", {"value": 1}, "names that begin with 'system-'", "reserved for system use only"),
        ("t-a", {"value": 1_000_000_001}, "is above 1000000000", "maximum allowed value of a user defined priority"),
        ("t-a", {"value": 2**31}, "is not a 32-bit number", "cannot unmarshal number"),
        ("T-a", {"value": 1}, "is not a valid object name", "RFC 1123 subdomain"),
        ("t-a", {"value": "1"}, "must be a whole number", "cannot unmarshal string"),
        ("t-a", {"value": 1, "globalDefault": "true"}, "must be true or false", "cannot unmarshal string"),
        ("t-a", {"value": 1, "preemptionPolicy": "never"}, "did you mean 'Never'?", "Unsupported value"),
        ("t-a", {"value": 1, "vaule": 1}, "unknown field 'vaule', did you mean 'value'?", 'unknown field "vaule"'),
        ("t-a", {"value": 1, "labels": {"a b": "c"}}, "is not a valid key", "Invalid value"),
        ("t-a", {"value": 1, "labels": {"a": "-"}}, "is not a valid value of a label", "Invalid value"),
        ("t-a", {"value": 1, "annotations": {"a b": "c"}}, "is not a valid key", "Invalid value"),
    ],
)
def test_what_daytwo_refuses_the_api_refuses_too(lab: Lab, name: str, fields: dict[str, Any], words: str, theirs: str) -> None:
    refused(run(priority_classes={name: fields}), words)
    manifest = class_manifest(name, **{key: value for key, value in fields.items() if key not in ("labels", "annotations")})
    manifest["metadata"] |= {key: fields[key] for key in ("labels", "annotations") if key in fields}
    api_refuses(lab, theirs, "create --validate=strict", manifest=manifest)


def test_dropped_classes_are_pruned_when_nobody_uses_them(lab: Lab) -> None:
    lab.kubectl("create", "priorityclass", "t-theirs", "--value=7")
    assert run(priority_classes="t-high=5,t-low=1").code == 0
    key = workload(lab, "Deployment", "t-web", "t-high")
    told = run(priority_classes="t-low=1")
    assert told.code == 0 and "prune=true" in told.out and "Deployment default/t-web" in told.out, told.all
    done(told, "PriorityClass t-high", "kept")

    refused(run(priority_classes="t-low=1", prune="true"), "daytwo never removes a class in use", "Deployment default/t-web")
    assert {"t-high", "t-theirs"} <= set(classes(lab))

    told = run(priority_classes="t-low=1", workloads=f"{key}=t-low", prune="true", force="true").ended(0)
    done(told, "PriorityClass t-high", "done")
    found = classes(lab)
    assert "t-high" not in found and {"t-low", "t-theirs", "system-node-critical", "system-cluster-critical"} <= set(found)
    told = run(priority_classes={}, prune="true")
    refused(told, "daytwo never removes a class in use")


# ---- workloads


# A Deployment gets its class by docs/runbooks/priority-classes.md.
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.slow) if kind == "Deployment" else kind for kind in KINDS])
def test_a_workload_gets_its_class(lab: Lab, kind: str) -> None:
    key = workload(lab, kind, "t-web")
    before = pods(lab, "t-web")
    told = run(priority_classes="t-high=1000", workloads=f"{key}=t-high").ended(0)
    assert f"recreates its pods, {len(before)} of them" in told.out
    assert "t-high (1000), read back" in done(told, f"{kind} default/t-web", "done")
    after = pods(lab, "t-web")
    assert len(after) == len(before) and not set(after) & set(before)
    assert set(after.values()) == {("t-high", 1000)}
    again = run(priority_classes="t-high=1000", workloads=f"{key}=t-high")
    assert again.code == 0 and "0 changes" in again.out and pods(lab, "t-web") == after, again.all


@pytest.mark.slow
def test_an_old_pod_that_does_not_end_is_a_warning(lab: Lab) -> None:
    """A finalizer holds it, as a node that is down would. It keeps no class either, so the run goes on to its end."""
    assert run(priority_classes="t-old=5,t-new=6").code == 0
    key = workload(lab, "Deployment", "t-web", "t-old")
    held = get(lab, "pods", "-n", "default", "-l", "app=t-web")["items"][0]["metadata"]["name"]
    lab.kubectl("patch", "pod", held, "-n", "default", "--type=merge", "-p", '{"metadata": {"finalizers": ["daytwo.test/held"]}}')
    try:
        told = run(priority_classes="t-new=6", workloads=f"{key}=t-new", prune="true", force="true").ended(0)
        assert "1 old pod STILL THERE" in done(told, "Deployment default/t-web", "done")
        done(told, "PriorityClass t-old", "done")
        warning = next(line for line in told.out.splitlines() if line.startswith("WARNING: "))
        for words in (f"{held} on ", "ending since ", "held by daytwo.test/held", "the tool that set this finalizer must remove it"):
            assert words in warning, told.all
        assert sorted(pods(lab, "t-web").values()) == [("t-new", 6), ("t-new", 6), ("t-old", 5)]
    finally:
        lab.kubectl("patch", "pod", held, "-n", "default", "--type=merge", "-p", '{"metadata": {"finalizers": null}}', check=False)


def no_pods_of(lab: Lab, priority: str) -> None:
    """A quota is against pods of that class."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "t-quota", "namespace": "default"},
        "spec": {
            "hard": {"pods": "0"},
            "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": [priority]}]},
        },
    }
    lab.kubectl("apply", "-f", "-", input=json.dumps(quota))
    wait_for(lambda: get(lab, "resourcequota", "t-quota", "-n", "default").get("status", {}).get("hard"), "the quota to be in force")


@pytest.mark.parametrize("kind", ["Deployment", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("StatefulSet", "DaemonSet"))])
def test_a_roll_out_that_fails_is_undone(lab: Lab, kind: str) -> None:
    """No pod with the class may be made: a quota is against it."""
    assert run(priority_classes="t-good=5,t-bad=6").code == 0
    key = workload(lab, kind, "t-web", "t-good")
    before = pods(lab, "t-web")
    no_pods_of(lab, "t-bad")

    # The way back has as long: what a StatefulSet or a DaemonSet has lost is made again; a Deployment has kept its pods.
    told = run(workloads=f"{key}=t-bad", rollout_timeout="20" if kind == "Deployment" else "40", force="true")
    assert told.code == 1, told.all
    done(told, f"{kind} default/t-web", "reverted")
    assert "exceeded quota: t-quota" in told.out and "reverted: rolled out" in told.out, told.all
    after = pods(lab, "t-web")
    assert len(after) == len(before) and set(after.values()) == {("t-good", 5)}
    found = get(lab, kind.lower(), "t-web", "-n", "default")
    assert found["spec"]["template"]["spec"]["priorityClassName"] == "t-good"
    lab.kubectl("rollout", "status", f"{kind.lower()}/t-web", "--timeout=60s")


def test_a_class_that_somebody_else_sets_in_mid_roll_out_stays(lab: Lab) -> None:
    """What is put back is what this run wrote, and nothing that came after it."""
    assert run(priority_classes="t-good=5,t-bad=6,t-theirs=7").code == 0
    key = workload(lab, "Deployment", "t-web", "t-good")
    no_pods_of(lab, "t-bad")
    started = Started("priority_classes", *data(workloads=f"{key}=t-bad", rollout_timeout="300", force="true"), "-y")
    started.wait_for("0 of 2 pods are new")
    theirs = {"spec": {"template": {"spec": {"priorityClassName": "t-theirs"}}}}
    lab.kubectl("patch", "deployment", "t-web", "-n", "default", "--type=merge", "-p", json.dumps(theirs))
    told = started.end().ended(1)
    done(told, "Deployment default/t-web", "foreign")
    assert "someone else gave it the class t-theirs meanwhile" in " ".join(told.out.split()), told.all
    found = get(lab, "deployment", "t-web", "-n", "default")
    assert found["spec"]["template"]["spec"]["priorityClassName"] == "t-theirs"
    lab.kubectl("rollout", "status", "deployment/t-web", "--timeout=60s")


def test_what_others_own_of_a_workload_is_not_taken(lab: Lab) -> None:
    assert run(priority_classes="t-high=5,t-low=1").code == 0
    key = workload(lab, "Deployment", "t-web", "t-low")
    refused(
        run(workloads=f"{key}=t-high"), ".spec.template.spec.priorityClassName is owned by the field manager 'kubectl-client-side-apply'"
    )
    assert {name for name, _ in pods(lab, "t-web").values()} == {"t-low"}


def test_workloads_that_are_not_there_or_cannot_roll(lab: Lab) -> None:
    workload(lab, "Deployment", "t-web")
    refused(
        run(priority_classes="t-high=5", workloads="default/deploy/t-wep=t-high,default/deploy/t-web=t-hihg"),
        "it does not exist, did you mean 't-web'?",
        "it does not exist, did you mean 't-high'?",
    )
    lab.kubectl("rollout", "pause", "deployment/t-web")
    refused(run(priority_classes="t-high=5", workloads="default/deploy/t-web=t-high"), "it is paused")
    assert "t-high" not in classes(lab)


# ---- the way back


def rollback(**values: str) -> Outcome:
    return pyinfra("rollback", "-y", *data(**values))


def description(lab: Lab, name: str) -> str:
    return str(get(lab, "priorityclass", name).get("description", ""))


def test_a_run_is_undone_by_its_name_from_another_machine(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes, and the class of a workload; then the undoing itself. The record lies with the cluster's lock."""
    assert run(priority_classes={"t-low": {"value": 1, "description": "first"}}).code == 0
    key = workload(lab, "Deployment", "t-web", "t-low")
    wanted = {"t-low": {"value": 1, "description": "second"}, "t-high": {"value": 1000, "labels": {"team": "shop"}}}
    told = run(priority_classes=wanted, workloads=f"{key}=t-high", force="true").ended(0)
    name = run_of(told)
    assert f"deploys/rollback.py --data run={name}" in told.out, told.all
    listed = pyinfra("changes", "-y")
    assert re.search(rf"^{name} .* priority_classes +confirmed .*create PriorityClass t-high", listed.out, re.MULTILINE), listed.all

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    dry = pyinfra("rollback", "--dry")
    assert dry.code == 0 and f"Undoing run {name}" in dry.out, "the newest run is undone where none is named"
    assert "-description: second" in dry.out and "+description: first" in dry.out, dry.all
    assert "t-high" in classes(lab) and description(lab, "t-low") == "second"

    back = rollback(run=name).ended(0)
    for object_name in ("PriorityClass t-low", "PriorityClass t-high", "Deployment default/t-web"):
        done(back, object_name, "done")
    assert "t-high" not in classes(lab) and description(lab, "t-low") == "first"
    assert set(pods(lab, "t-web").values()) == {("t-low", 1)}
    again = rollback(run=name)
    assert again.code == 0 and "0 changes of the cluster's objects" in again.out, again.all

    rollback(run=run_of(back)).ended(0)
    assert classes(lab)["t-high"][1] == 1000 and description(lab, "t-low") == "second"
    assert get(lab, "priorityclass", "t-high")["metadata"]["labels"] == {"team": "shop"}
    assert set(pods(lab, "t-web").values()) == {("t-high", 1000)}


def test_what_others_have_set_since_is_not_undone(lab: Lab) -> None:
    assert run(priority_classes={"t-high": {"value": 5, "description": "first"}}).code == 0
    told = run(priority_classes={"t-high": {"value": 5, "description": "second"}}).ended(0)
    lab.kubectl("patch", "priorityclass", "t-high", "--field-manager=someone", "-p", '{"description": "theirs"}')
    refused(
        rollback(run=run_of(told)), "foreign", "description is 'theirs', and that run set it to 'second'", "owned by someone", "force=true"
    )
    assert description(lab, "t-high") == "theirs"
    forced = rollback(run=run_of(told), force="true")
    assert forced.code == 0 and description(lab, "t-high") == "first", forced.all


def test_a_class_that_others_gave_a_workload_since_stays(lab: Lab) -> None:
    assert run(priority_classes="t-high=5,t-low=1,t-theirs=7").code == 0
    key = workload(lab, "Deployment", "t-web", "t-low")
    told = run(workloads=f"{key}=t-high", force="true").ended(0)
    theirs = {"spec": {"template": {"spec": {"priorityClassName": "t-theirs"}}}}
    lab.kubectl("patch", "deployment", "t-web", "-n", "default", "--type=merge", "-p", json.dumps(theirs))
    lab.kubectl("rollout", "status", "deployment/t-web", "--timeout=280s")
    refused(rollback(run=run_of(told)), "foreign", "is 't-theirs', and that run set it to 't-high'")
    assert set(pods(lab, "t-web").values()) == {("t-theirs", 7)}


def test_what_was_removed_or_replaced_comes_back_and_what_is_used_stays(lab: Lab) -> None:
    assert run(priority_classes={"t-old": {"value": 5, "description": "kept"}, "t-high": 1000}).code == 0
    removed = run(priority_classes="t-high=1000", prune="true")
    assert removed.code == 0 and "t-old" not in classes(lab), removed.all
    replaced = run(priority_classes="t-high=2000", replace="true")
    assert replaced.code == 0 and classes(lab)["t-high"][1] == 2000, replaced.all
    created = run(priority_classes="t-high=2000,t-new=3").ended(0)
    workload(lab, "Deployment", "t-web", "t-new")

    refused(rollback(run=run_of(created)), "daytwo never removes a class in use", "Deployment default/t-web")
    back = rollback(run=run_of(replaced))
    assert back.code == 0 and classes(lab)["t-high"][1] == 1000, back.all
    back = rollback(run=run_of(removed)).ended(0)
    assert classes(lab)["t-old"][1] == 5 and description(lab, "t-old") == "kept" and "t-new" in classes(lab)


# ---- what it is for


def cpu(text: str) -> int:
    """Thousandths of a CPU."""
    return int(text[:-1]) if text.endswith("m") else int(float(text) * 1000)


def room(lab: Lab, node: str) -> int:
    """Thousandths of a CPU of a node that no pod has requested, once what is ending there has ended: it still holds its requests."""

    def there() -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = get(lab, "pods", "-A", f"--field-selector=spec.nodeName={node}")["items"]
        return items

    wait_for(lambda: not any("deletionTimestamp" in item["metadata"] for item in there()), f"what is ending on {node} to be gone")
    taken = 0
    for item in there():
        if item["status"]["phase"] not in ("Succeeded", "Failed"):
            taken += sum(cpu(each.get("resources", {}).get("requests", {}).get("cpu", "0")) for each in item["spec"]["containers"])
    return cpu(get(lab, "node", node)["status"]["allocatable"]["cpu"]) - taken


def make_pod(lab: Lab, name: str, priority: str, node: str, millis: int) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name, MINE: "yes"}},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "priorityClassName": priority,
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "app",
                    "image": f"{images.REPOSITORY}/app:1",
                    "imagePullPolicy": "Never",
                    "resources": {"requests": {"cpu": f"{millis}m"}},
                }
            ],
        },
    }
    lab.kubectl("apply", "-f", "-", input=json.dumps(pod))


def test_a_higher_pod_really_preempts_a_lower_one(lab: Lab) -> None:
    node = lab.workers[0]
    wanted = {"t-high": 1000, "t-low": -10, "t-polite": {"value": 1000, "preemptionPolicy": "Never"}}
    assert run(priority_classes=wanted).code == 0
    free = room(lab, node)
    make_pod(lab, "t-lower", "t-low", node, free - 50)
    lab.kubectl("wait", "--for=condition=Ready", "pod/t-lower", "--timeout=280s")
    lower = get(lab, "pod", "t-lower")["metadata"]["uid"]

    def preempted() -> bool:
        events = get(lab, "events", "-n", "default", f"--field-selector=involvedObject.uid={lower},reason=Preempted")["items"]
        return bool(events)

    def unschedulable() -> bool:
        conditions = get(lab, "pod", "t-waits").get("status", {}).get("conditions", [])
        return any(found["type"] == "PodScheduled" and found.get("reason") == "Unschedulable" for found in conditions)

    # The same number without preemption waits.
    make_pod(lab, "t-waits", "t-polite", node, 100)
    wait_for(unschedulable, "the pod that never preempts to be found unschedulable")
    assert not preempted() and get(lab, "pod", "t-lower")["metadata"]["uid"] == lower
    lab.kubectl("delete", "pod", "t-waits", "--now")

    make_pod(lab, "t-higher", "t-high", node, 100)
    lab.kubectl("wait", "--for=condition=Ready", "pod/t-higher", "--timeout=280s")
    wait_for(preempted, "the event that tells of the preemption")
    assert get(lab, "pod", "t-higher")["spec"]["nodeName"] == node
    wait_for(lambda: "t-lower" not in lab.kubectl("get", "pods", "-n", "default", "-o", "name"), "the lower pod to be gone")


# ---- each way the API fails


@pytest.fixture
def alone(lab: Lab) -> str:
    """The only control-plane node: where there are others, they answer in its place, and nothing fails."""
    if len(lab.control_planes) > 1:
        pytest.skip("another control-plane node would answer")
    return lab.control_planes[0]


class Authority:
    """The cluster's CA, to make certificates that are as wrong as a test needs."""

    def __init__(self, lab: Lab, node: str) -> None:
        self.pem = lab.run(node, f"cat {PKI}/ca.crt").stdout.encode()
        self._certificate = x509.load_pem_x509_certificate(self.pem)
        self._key = serialization.load_pem_private_key(lab.run(node, f"cat {PKI}/ca.key").stdout.encode(), None)

    def sign(self, name: x509.Name, public: Any, days: tuple[int, int], *extensions: x509.ExtensionType) -> bytes:
        """PEM, valid from and until so many days from now."""
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._certificate.subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + datetime.timedelta(days=days[0]))
            .not_valid_after(now + datetime.timedelta(days=days[1]))
        )
        # By the identifier that the CA gives itself: there is more than one way to make one of a key.
        named = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(named)
        for extension in (issuer, *extensions):
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)  # type: ignore[arg-type]

    def kubeconfig(self, path: Path, user: str, days: tuple[int, int] = (-2, 1)) -> Path:
        """Of a user without groups; the server in it is not asked: daytwo goes through SSH."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user)])
        certificate = self.sign(name, key.public_key(), days, x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]))
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        inline = {"client-certificate-data": certificate, "client-key-data": private}
        config = {
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [
                {
                    "name": "c",
                    "cluster": {"server": "https://elsewhere:6443", "certificate-authority-data": base64.b64encode(self.pem).decode()},
                }
            ],
            "users": [{"name": "u", "user": {key: base64.b64encode(value).decode() for key, value in inline.items()}}],
        }
        path.write_text(json.dumps(config))
        return path


def test_rbac_names_verb_resource_and_identity(lab: Lab, tmp_path: Path) -> None:
    kubeconfig = Authority(lab, lab.control_planes[0]).kubeconfig(tmp_path / "limited", "t-limited")
    told = run(priority_classes="t-high=5", kubeconfig=str(kubeconfig))
    refused(told, "RBAC: 't-limited' may not list priorityclasses.scheduling.k8s.io", "grant 't-limited' the verb list")

    rules = "pods,replicationcontrollers,deployments.apps,statefulsets.apps,daemonsets.apps,replicasets.apps,jobs.batch,cronjobs.batch"
    lab.kubectl("create", "clusterrole", "t-reader", "--verb=get,list", f"--resource=priorityclasses.scheduling.k8s.io,{rules}")
    try:
        lab.kubectl("create", "clusterrolebinding", "t-reader", "--clusterrole=t-reader", "--user=t-limited")
        told = run(priority_classes="t-high=5", kubeconfig=str(kubeconfig))
        refused(told, "RBAC: 't-limited' may not patch priorityclasses.scheduling.k8s.io", "grant 't-limited' the verb patch")
        assert "t-high" not in classes(lab)
    finally:
        lab.kubectl("delete", "clusterrolebinding,clusterrole", "t-reader")


def test_credentials_that_have_expired(lab: Lab, tmp_path: Path) -> None:
    kubeconfig = Authority(lab, lab.control_planes[0]).kubeconfig(tmp_path / "expired", "t-limited", (-2, -1))
    refused(run(priority_classes="t-high=5", kubeconfig=str(kubeconfig)), "401 Unauthorized", "the certificate may have expired")


def test_a_kubeconfig_of_another_cluster(lab: Lab, tmp_path: Path) -> None:
    authority = Authority(lab, lab.control_planes[0])
    key = ec.generate_private_key(ec.SECP256R1())
    # Self-signed: an authority that this cluster's API server has nothing of.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "another")])
    now = datetime.datetime.now(datetime.UTC)
    other = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(True, None), critical=True)
        .sign(key, hashes.SHA256())
    )
    authority.pem = other.public_bytes(serialization.Encoding.PEM)
    kubeconfig = authority.kubeconfig(tmp_path / "another", "t-limited")
    refused(run(priority_classes="t-high=5", kubeconfig=str(kubeconfig)), "is not valid for 'kubernetes'", "another CA signed it")


def served_serial(lab: Lab, node: str) -> int:
    """Serial number of the certificate that the node's API server shows."""
    told = lab.run(
        node, "openssl s_client -connect 127.0.0.1:6443 </dev/null 2>/dev/null | openssl x509 -noout -serial", check=False
    ).stdout
    return int(told.strip().partition("=")[2] or "0", 16)


def test_a_serving_certificate_that_has_expired(lab: Lab, alone: str) -> None:
    """The API server reads its certificate anew by itself."""
    pem = lab.run(alone, f"cat {PKI}/apiserver.crt").stdout
    good = x509.load_pem_x509_certificate(pem.encode())
    names = good.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    bad = Authority(lab, alone).sign(good.subject, good.public_key(), (-2, -1), names, usage)
    try:
        lab.run(alone, f"cat >{PKI}/apiserver.crt", input=bad.decode())
        serial = x509.load_pem_x509_certificate(bad).serial_number
        wait_for(lambda: served_serial(lab, alone) == serial, "the expired certificate to be served", 400)
        refused(run(priority_classes="t-high=5"), "certificate has expired", "renew the certificate", "kubeadm certs renew apiserver")
    finally:
        lab.run(alone, f"cat >{PKI}/apiserver.crt", input=pem)
        wait_for(lambda: served_serial(lab, alone) == good.serial_number, "the good certificate to be served again", 400)
        wait_for(lambda: settled(lab), "all nodes to be ready", 400)
    assert "t-high" not in classes(lab)


def settled(lab: Lab) -> bool:
    """The API answers, and every node and every pod of the control plane is ready."""
    told = lab.kubectl("get", "nodes", "-o", "json", check=False)
    if not told:
        return False
    ready = [
        any(found["type"] == "Ready" and found["status"] == "True" for found in item["status"]["conditions"])
        for item in json.loads(told)["items"]
    ]
    static = lab.kubectl("get", "pods", "-n", "kube-system", "-o", "json", check=False)
    if not static:
        return False
    states = [state["ready"] for pod in json.loads(static)["items"] for state in pod["status"].get("containerStatuses", [{"ready": False}])]
    return len(ready) == len(lab.nodes) and all(ready) and all(states)


def apiserver_pid(lab: Lab, node: str) -> str:
    return lab.run(node, "pidof kube-apiserver", check=False).stdout.strip()


def test_an_api_that_is_down(lab: Lab, alone: str) -> None:
    aside = "/root/kube-apiserver.yaml"
    lab.run(alone, f"mv {MANIFESTS}/kube-apiserver.yaml {aside}")
    try:
        # Once it ends, its grace period of 30 s is nothing to wait for. Not before: the kubelet would start it again.
        wait_for(lambda: not operator.ready(lab, alone), "the API server to be ending")
        lab.run(alone, "pkill -KILL -x kube-apiserver", check=False)
        wait_for(lambda: not apiserver_pid(lab, alone), "the API server to be gone")
        refused(run(priority_classes="t-high=5"), f"the API is down: no kube-apiserver runs on {alone}", "crictl ps -a")
    finally:
        lab.run(alone, f"mv {aside} {MANIFESTS}/kube-apiserver.yaml")
        wait_for(lambda: settled(lab), "the control plane to be back", 600)


@pytest.mark.slow
def test_an_api_that_does_not_answer(lab: Lab, alone: str) -> None:
    pid = apiserver_pid(lab, alone)
    # Its liveness probe has it restarted after about two minutes, and daytwo gives up after one.
    lab.run(alone, f"kill -STOP {pid}")
    try:
        refused(run(priority_classes="t-high=5"), "the cluster's objects cannot be read", "timed out waiting for an answer", "tried for")
    finally:
        lab.run(alone, f"kill -CONT {pid}", check=False)
        wait_for(lambda: settled(lab), "the control plane to be well", 600)


@contextlib.contextmanager
def forwarding_forbidden(lab: Lab) -> Iterator[None]:
    nodes = lab.control_planes
    try:
        for node in nodes:
            lab.run(node, f"echo 'AllowTcpForwarding no' >{SSHD} && systemctl reload ssh")
            # Once it has begun anew, connections are taken again.
            wait_for(
                lambda node=node: "allowtcpforwarding no" in lab.run(node, "/usr/sbin/sshd -T", check=False).stdout, "sshd to forbid it"
            )
        yield
    finally:
        for node in nodes:
            lab.run(node, f"rm -f {SSHD} && systemctl reload ssh")
            wait_for(
                lambda node=node: "allowtcpforwarding yes" in lab.run(node, "/usr/sbin/sshd -T", check=False).stdout, "sshd to allow it"
            )


def test_forwarding_that_is_forbidden(lab: Lab, tmp_path: Path) -> None:
    """kubectl on the node does it all the same; without it, and with credentials that are not for the node, it is told why not."""
    kubeconfig = Authority(lab, lab.control_planes[0]).kubeconfig(tmp_path / "limited", "t-limited")
    with forwarding_forbidden(lab):
        key = workload(lab, "Deployment", "t-web")
        told = run(priority_classes={"t-high": {"value": 5, "description": "by kubectl"}}, workloads=f"{key}=t-high").ended(0)
        found = get(lab, "priorityclass", "t-high")
        assert found["description"] == "by kubectl" and found["metadata"]["managedFields"][0]["manager"] == "daytwo"
        assert set(pods(lab, "t-web").values()) == {("t-high", 5)}
        # What kubectl's own server-side apply would do: take the fields of client-side apply over.
        managers = {entry["manager"] for entry in get(lab, "deployment", "t-web", "-n", "default")["metadata"]["managedFields"]}
        assert {"daytwo", "kubectl-client-side-apply"} <= managers
        for node in lab.control_planes:
            assert "kubectl" not in lab.run(node, "pgrep -af '[k]ubectl.*proxy' || true").stdout

        told = run(priority_classes="t-other=5", kubeconfig=str(kubeconfig))
        refused(told, "its sshd forbids forwarding to", "AllowTcpForwarding local")
        assert "t-other" not in classes(lab)


def test_forwarding_that_is_forbidden_and_no_curl(lab: Lab, alone: str) -> None:
    path = lab.run(alone, "readlink -f $(command -v curl)").stdout.strip()
    with forwarding_forbidden(lab):
        lab.run(alone, f"mv {path} {path}.aside")
        try:
            refused(run(priority_classes="t-high=5"), "forwarding is forbidden, and there is no curl", "allow forwarding, or install curl")
        finally:
            lab.run(alone, f"mv {path}.aside {path}")
    assert "t-high" not in classes(lab)
