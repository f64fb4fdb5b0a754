"""PodDisruptionBudgets on a real cluster: daytwo's numbers against kube-controller-manager's, its answers to evictions against the API
server's, the deploy and its undo, and each rule of the lint, planted and gone after its advice was followed."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from roles.engine.api import NotFound
from roles.engine.disruption import KINDS_OF_DISRUPTION, PDB, DisruptionObjects, budget_states, eviction_answer, read_disruption
from roles.engine.disruption.budgets import Budgets
from tests.integration import operator
from tests.integration.operator import Outcome, data, pyinfra, refused, run_of, wait_for
from tests.lab import Lab, images

pytestmark = pytest.mark.lab

NAMESPACE, EMPTY = "t-budgets", "t-budgets-empty"
GROUP = "t.daytwo.example"
NEVER_READY = {"exec": {"command": ["/bin/sh", "-c", "exit 1"]}, "periodSeconds": 1}
BATCHES, BUDGETS = 3, 40


# ---- what is there


def spec(**more: Any) -> dict[str, Any]:
    container = {"name": "app", "image": f"{images.REPOSITORY}/app:1", "imagePullPolicy": "Never", **more.pop("container", {})}
    return {"terminationGracePeriodSeconds": 1, "containers": [container], **more}


def workload(kind: str, name: str, replicas: int | None = None, **more: Any) -> dict[str, Any]:
    version = {"Job": "batch/v1", "ReplicationController": "v1"}.get(kind, "apps/v1")
    template = {"metadata": {"labels": {"app": name}}, "spec": spec(**more)}
    inner: dict[str, Any] = {"template": template}
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
    else:
        inner["selector"] = {"app": name} if kind == "ReplicationController" else {"matchLabels": {"app": name}}
    if replicas is not None:
        inner["replicas"] = replicas
    if kind == "StatefulSet":
        inner |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": inner}


def bare(name: str, app: str, owner: dict[str, Any] | None = None, finalizers: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name, "namespace": NAMESPACE, "labels": {"app": app}, "finalizers": list(finalizers)}
    if owner is not None:
        names = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }
        meta["ownerReferences"] = [{**names, "controller": True}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec(**more)}


def definition(plural: str, kind: str, *, scale: bool) -> dict[str, Any]:
    subresources = {"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}} if scale else {}
    number = {"type": "object", "properties": {"replicas": {"type": "integer"}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": number, "status": number}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema, "subresources": subresources}
    names = {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def budget(name: str, namespace: str = NAMESPACE, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name, "namespace": namespace}, "spec": fields}


def of_app(app: str) -> dict[str, Any]:
    return {"matchLabels": {"app": app}}


def apply(lab: Lab, *items: dict[str, Any]) -> None:
    lab.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}))


def get(lab: Lab, *what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.kubectl("get", "-n", NAMESPACE, *what, "-o", "json"))
    return found


class Raw:
    """The reading half of an Api, by kubectl: the lists by one command, as they are when it is made."""

    host = "cp1"

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        kinds = {path.rpartition("/")[2]: kind for kind, path in KINDS_OF_DISRUPTION.items()}
        items = get(lab, ",".join(kinds))["items"]
        self._lists = {plural: [item for item in items if item["kind"] == kind] for plural, kind in kinds.items()}

    def get_json(self, path: str, timeout: float = 0.0, *, wait: float = 0.0) -> dict[str, Any]:
        plain = path.partition("?")[0].rpartition("/")[2]
        if plain in self._lists:
            return {"items": self._lists[plain]}
        told = self._lab.kubectl("get", "--raw", path, "--ignore-not-found")
        if not told:
            raise NotFound(self.host, path, "not found", "")
        found: dict[str, Any] = json.loads(told)
        return found


def observed(lab: Lab) -> tuple[DisruptionObjects, Budgets]:
    live = read_disruption(Raw(lab), {NAMESPACE})  # type: ignore[arg-type]
    return live, budget_states(live, datetime.now(UTC))


def wait_for_fleets(lab: Lab) -> None:
    """kube-controller-manager looks for new resources every 30 s; a budget that needs one before that is computed again later and later.
    So each look is at a budget of its own."""
    numbers = count()

    def computed() -> bool:
        name = f"known-{next(numbers)}"
        apply(lab, budget(name, selector=of_app("fleet"), maxUnavailable=1))
        wait_for(lambda: get(lab, "pdb", name).get("status", {}).get("conditions"), "a first look at the budget")
        reasons = {one["reason"] for one in get(lab, "pdb", name)["status"]["conditions"]}
        lab.kubectl("delete", "pdb", "-n", NAMESPACE, name)
        return "SyncFailed" not in reasons

    wait_for(computed, "a controller that knows the scale of fleets", every=2)


@pytest.fixture(scope="module", autouse=True)
def shop(lab: Lab) -> Iterator[None]:
    """A namespace with every kind of owner of pods. The pods of `unready` never are, those of `crash` fail."""
    for namespace in (NAMESPACE, EMPTY):
        lab.kubectl("create", "namespace", namespace)
    wait_for(lambda: lab.kubectl("get", "serviceaccount", "default", "-n", NAMESPACE, check=False), "the namespace's service account")
    apply(lab, definition("fleets", "Fleet", scale=True), definition("rocks", "Rock", scale=False))
    lab.kubectl("wait", "--for=condition=Established", f"crd/fleets.{GROUP}", f"crd/rocks.{GROUP}", "--timeout=120s")
    apply(
        lab,
        workload("Deployment", "web", 3),
        workload("Deployment", "unready", 2, container={"readinessProbe": NEVER_READY}),
        workload("Deployment", "crash", 2, container={"command": ["/bin/sh", "-c", "exit 1"], "readinessProbe": NEVER_READY}),
        workload("StatefulSet", "db", 2),
        workload("ReplicaSet", "set", 2),
        workload("ReplicationController", "old", 1),
        workload("DaemonSet", "agent"),
        workload("Job", "job"),
        {"apiVersion": f"{GROUP}/v1", "kind": "Fleet", "metadata": {"name": "fleet", "namespace": NAMESPACE}, "spec": {"replicas": 3}},
        {"apiVersion": f"{GROUP}/v1", "kind": "Rock", "metadata": {"name": "rock", "namespace": NAMESPACE}, "spec": {"replicas": 3}},
    )
    apply(
        lab,
        bare("alone-1", "alone"),
        bare("alone-2", "alone"),
        bare("fleet-1", "fleet", get(lab, f"fleets.{GROUP}", "fleet")),
        bare("rock-1", "rock", get(lab, f"rocks.{GROUP}", "rock")),
        bare("done", "done", restartPolicy="Never", container={"command": ["/bin/sh", "-c", "exit 0"]}),
        bare("held", "alone", finalizers=(f"{GROUP}/held",)),
        bare("unscheduled", "alone", nodeSelector={"no-such": "node"}),
    )
    for name in ("deployment/web", "statefulset/db", "daemonset/agent"):
        lab.kubectl("rollout", "status", "-n", NAMESPACE, name, "--timeout=280s")
    wait_for(lambda: settled(lab), "the pods")
    wait_for_fleets(lab)
    yield
    lab.kubectl("patch", "pod", "-n", NAMESPACE, "held", "--type=merge", "-p", '{"metadata":{"finalizers":null}}', check=False)
    lab.kubectl("delete", "crd", f"fleets.{GROUP}", f"rocks.{GROUP}", "--wait=false")
    lab.kubectl("delete", "pods", "-n", NAMESPACE, "--all", "--now", "--wait=false")
    lab.kubectl("delete", "namespace", NAMESPACE, EMPTY, "--wait", "--timeout=280s")
    operator.forget(lab)


def settled(lab: Lab) -> bool:
    """Every pod is in the state that it stays in; those of `crash` fail and restart, and are never Ready."""
    for item in get(lab, "pods")["items"]:
        app, status = item["metadata"]["labels"]["app"], item["status"]
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", ()))
        if app == "done":
            good = status["phase"] == "Succeeded"
        elif item["metadata"]["name"] == "unscheduled":
            good = status["phase"] == "Pending"
        elif app == "crash":
            good = "CrashLoopBackOff" in json.dumps(status)
        elif app == "unready":
            good = status["phase"] == "Running"
        else:
            good = ready
        if not good and not item["metadata"].get("deletionTimestamp"):
            return False
    return True


@pytest.fixture(autouse=True)
def no_budgets(lab: Lab) -> Iterator[None]:
    yield
    for namespace in (NAMESPACE, EMPTY):
        lab.kubectl("delete", "pdb", "-n", namespace, "--all", "--wait")


# ---- the numbers, and the answers to evictions

APPS = ("web", "unready", "crash", "db", "set", "old", "agent", "job", "fleet", "rock", "alone", "done")
#: Those whose pods have a scale; a budget of others fails to sync if it counts by scales, which is half of the budgets anyway.
SCALED = ("web", "unready", "crash", "db", "set", "old", "fleet")


def a_rule(chance: random.Random) -> dict[str, Any]:
    percent = f"{chance.choice((0, 1, 10, 25, 33, 34, 50, 51, 67, 99, 100))}%"
    number = chance.choice((0, 1, 2, 3, 5, 9))
    rule = chance.choice(
        (
            {},
            {"minAvailable": number},
            {"minAvailable": percent},
            {"maxUnavailable": number},
            {"maxUnavailable": percent},
            {"maxUnavailable": 1},
        )
    )
    policy = chance.choice((None, "AlwaysAllow", "IfHealthyBudget"))
    return {**rule, **({"unhealthyPodEvictionPolicy": policy} if policy else {})}


def a_selector(chance: random.Random) -> dict[str, Any]:
    some = chance.sample(SCALED if chance.random() < 0.7 else APPS, chance.randint(1, 4))
    return chance.choice(
        (
            {"selector": of_app(chance.choice(APPS))},
            {"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": some}]}},
            {"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": some}]}},
            {"selector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": some}]}},
            {"selector": {"matchLabels": {"app": some[0]}, "matchExpressions": [{"key": "job-name", "operator": "DoesNotExist"}]}},
            {"selector": {"matchExpressions": [{"key": "pod-template-hash", "operator": "Exists"}]}},
            {"selector": {}},
            {},
        )
    )


def wrong(lab: Lab) -> list[str]:
    """How the status of each budget differs from daytwo's numbers."""
    found = []
    for state in observed(lab)[1]:
        if not state.caught_up and not state.problem:
            found.append(f"{state.key}: not seen yet")
        if state.unread:
            found.append(f"{state.key}: {state.unread}")
        found += [f"{state.key} ({state.rule}; {state.selector}): {one}" for one in state.differences]
        # Of several pods without a scale, the controller names any.
        if state.problem and len({pod["metadata"]["labels"]["app"] for pod in state.pods}) == 1 and state.status.message != state.problem:
            found.append(f"{state.key}: {state.status.message!r}, not {state.problem!r}")
    return found


def agreed(lab: Lab) -> None:
    found: list[str] = []

    def same() -> bool:
        found[:] = wrong(lab)
        return not found

    try:
        wait_for(same, "the same numbers", 60)
    except AssertionError:
        raise AssertionError("\n".join(found)) from None


def test_the_numbers_of_generated_budgets_are_those_of_the_real_controller(lab: Lab) -> None:
    chance = random.Random(20260301)
    seen: set[tuple[bool, int]] = set()
    for batch in range(BATCHES):
        if batch == 1:
            lab.kubectl("scale", "-n", NAMESPACE, "deployment/web", "--replicas=4")
            lab.kubectl("scale", "-n", NAMESPACE, "statefulset/db", "--replicas=1")
            lab.kubectl("delete", "pod", "-n", NAMESPACE, "held", "--wait=false")
            wait_for(lambda: len(get(lab, "pods", "-l", "app=web")["items"]) == 4 and settled(lab), "the scaled pods")
            wait_for(lambda: len(get(lab, "pods", "-l", "app=db")["items"]) == 1, "the last pod of db")
        if batch == 2:
            lab.kubectl("scale", "-n", NAMESPACE, "deployment/web", "--replicas=0")
            lab.kubectl("scale", "-n", NAMESPACE, "statefulset/db", "--replicas=2")
            lab.kubectl("patch", "-n", NAMESPACE, f"fleets.{GROUP}/fleet", "--type=merge", "-p", '{"spec":{"replicas":1}}')
            wait_for(lambda: not get(lab, "pods", "-l", "app=web")["items"] and settled(lab), "no pods of web")
            wait_for(lambda: len(get(lab, "pods", "-l", "app=db")["items"]) == 2 and settled(lab), "the pods of db")
        # An event of a pod refreshes only one of its budgets: each batch has new ones.
        lab.kubectl("delete", "pdb", "-n", NAMESPACE, "--all", "--wait")
        apply(lab, *(budget(f"b{batch}-{number}", **a_rule(chance), **a_selector(chance)) for number in range(BUDGETS)))
        agreed(lab)
        seen |= {(bool(state.problem), min(state.disruptions_allowed, 2)) for state in observed(lab)[1]}
    assert seen == {(True, 0), (False, 0), (False, 1), (False, 2)}, "the generator makes budgets of all sorts"
    lab.kubectl("scale", "-n", NAMESPACE, "deployment/web", "--replicas=3")
    lab.kubectl("patch", "-n", NAMESPACE, f"fleets.{GROUP}/fleet", "--type=merge", "-p", '{"spec":{"replicas":3}}')
    wait_for(lambda: len(get(lab, "pods", "-l", "app=web")["items"]) == 3 and settled(lab), "the pods of web")


def answers(lab: Lab, names: list[str]) -> dict[str, tuple[int, str]]:
    """The API server's answer to the eviction of each pod, as a dry run: the code and the body."""
    script = f"""
kubectl --kubeconfig=/etc/kubernetes/admin.conf proxy --port=18765 >/dev/null & proxy=$!
until curl -s -o /dev/null 127.0.0.1:18765/version; do sleep 0.1; done
for pod in {" ".join(names)}; do
    body='{{"apiVersion":"policy/v1","kind":"Eviction","metadata":{{"namespace":"{NAMESPACE}","name":"'$pod'"}}}}'
    printf '%s ' $pod
    curl -s -w ' %{{http_code}}\\n' -H 'Content-Type: application/json' -d "$body" \
        "http://127.0.0.1:18765/api/v1/namespaces/{NAMESPACE}/pods/$pod/eviction?dryRun=All" | tr '\\n' ' '
    echo
done
kill $proxy
"""
    found = {}
    for line in lab.run("cp1", script).stdout.splitlines():
        name, _, rest = line.strip().partition(" ")
        body, _, code = rest.rpartition(" ")
        found[name] = (int(code), body)
    return found


def test_the_answers_to_evictions_are_those_of_the_real_api_server(lab: Lab) -> None:
    """Each app has one budget, so that nearly every answer is reached; `set` has two."""
    rules: dict[str, dict[str, Any]] = {
        "web": {"maxUnavailable": 1},
        "unready": {"minAvailable": 1},
        "crash": {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
        "db": {"minAvailable": 2},
        "set": {"maxUnavailable": 1},
        "old": {"maxUnavailable": 1},
        "agent": {"maxUnavailable": 1},
        "job": {"minAvailable": 0},
        "fleet": {"maxUnavailable": "67%"},
        "alone": {"maxUnavailable": 1},
        "done": {"maxUnavailable": 0},
    }
    apply(
        lab,
        *(budget(app, selector=of_app(app), **rule) for app, rule in rules.items()),
        budget("set-2", selector=of_app("set"), maxUnavailable=2),
    )
    agreed(lab)
    # The pod of an eviction that was allowed a moment ago, as the API server notes it; and one that was allowed too long ago to count.
    victim, other, *_ = (pod["metadata"]["name"] for pod in get(lab, "pods", "-l", "app=web")["items"])
    now = datetime.now(UTC)
    times = {name: at.strftime("%Y-%m-%dT%H:%M:%SZ") for name, at in ((victim, now), (other, now - timedelta(seconds=121)))}
    patch = ("--type=merge", "-o", "json", "-p", json.dumps({"status": {"disruptedPods": times}}))
    noted = json.loads(lab.kubectl("patch", "pdb", "-n", NAMESPACE, "web", "--subresource=status", *patch))
    assert set(noted["status"]["disruptedPods"]) == {victim, other}
    there = observed(lab)[0]
    (mine,) = budget_states(replace(there, objects={**there.objects, PDB: [noted]}), now)
    assert (mine.numbers.current_healthy, mine.disruptions_allowed, set(mine.numbers.disrupted)) == (2, 0, {victim})
    wait_for(lambda: get(lab, "pdb", "web")["status"]["currentHealthy"] == 2, "the noted eviction")
    agreed(lab)
    assert set(get(lab, "pdb", "web")["status"]["disruptedPods"]) == {victim}
    live, states = observed(lab)
    pods = {pod["metadata"]["name"]: pod for pod in live.of("Pod")}
    real = answers(lab, list(pods))
    for name, pod in pods.items():
        answer, (code, body) = eviction_answer(pod, states), real[name]
        assert answer.code == code, f"{name}: {answer} but {code} {body}"
        if code != 201:
            words = answer.why.partition("; the pod is not Ready")[0].partition(" (t-budgets/")[0]
            assert words in body.replace('\\"', '"'), f"{name}: {answer} but {body}"
    by_app = {pod["metadata"]["labels"]["app"]: eviction_answer(pod, states) for pod in pods.values()}
    codes = {app: answer.code for app, answer in by_app.items()}
    assert codes == {
        "web": 429, "unready": 429, "crash": 201, "db": 429, "set": 500, "old": 201, "agent": 429, "job": 201, "fleet": 201, "rock": 201,
        "alone": codes["alone"], "done": 201,
    }  # fmt: skip
    assert by_app["agent"].retry_after == 10, "a new budget that cannot be computed is never seen as up to date"
    assert {app for app, answer in by_app.items() if answer.never} >= {"db", "set", "agent"}


# ---- the deploy


def run(*arguments: str, dry: bool = False, **values: Any) -> Outcome:
    words = data(**{key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()})
    return pyinfra("disruption_budgets", *words, *arguments, "--dry" if dry else "-y")


def done(told: Outcome, name: str, outcome: str) -> None:
    rows = [line for line in told.out.splitlines() if re.match(rf"PodDisruptionBudget {NAMESPACE}/{name}  ", line)]
    assert rows and f"  {outcome}  " in rows[-1], told.all


def undone(run: str, *arguments: str) -> Outcome:
    return pyinfra("rollback", *data(run=run), *arguments, "-y")


def names(lab: Lab) -> set[str]:
    return {item["metadata"]["name"] for item in get(lab, "pdb")["items"]}


WEB = {"workload": "deployment/web", "max_unavailable": 1, "unhealthy_pod_eviction_policy": "AlwaysAllow"}


def test_planned_applied_proven_and_undone(lab: Lab) -> None:
    key = f"{NAMESPACE}/web"
    told = run(disruption_budgets={key: WEB}, dry=True)
    flat = " ".join(told.out.split())
    assert told.code == 0 and "now: no such budget" in flat, told.all
    assert "after: allows 1 (maxUnavailable 1: needs 2 healthy pods of 3, has 3); selects 3 pods (app=web)" in flat, told.all
    assert not names(lab), "a dry run makes nothing"

    made = run(disruption_budgets={key: WEB})
    assert made.code == 0 and "kube-controller-manager and daytwo agree: allows 1" in " ".join(made.all.split()) + record_of(made), made.all
    done(made, "web", "done")
    found = get(lab, "pdb", "web", "--show-managed-fields")
    assert found["status"]["disruptionsAllowed"] == 1 and found["spec"]["selector"] == of_app("web")
    assert any(one["manager"] == "daytwo" and one["operation"] == "Apply" for one in found["metadata"]["managedFields"])
    again = run(disruption_budgets={key: WEB})
    assert again.code == 0 and "0 changes of the cluster's objects" in again.out and "as wanted" in again.out, again.all

    # Another limit, no policy any more, and a budget that never lets a drain end: said before.
    worse = run(disruption_budgets={key: {"workload": "deploy/web", "min_available": "100%"}})
    assert worse.code == 0 and "WARNING: minAvailable 100% allows none" in worse.out and "never lets a drain end of" in worse.out, worse.all
    assert get(lab, "pdb", "web")["spec"] == {"minAvailable": "100%", "selector": of_app("web")}
    lab.kubectl("patch", "pdb", "-n", NAMESPACE, "web", "--type=merge", "-p", '{"spec":{"minAvailable":"99%"}}')
    foreign = undone(run_of(worse))
    assert foreign.code != 0 and "foreign" in foreign.all and get(lab, "pdb", "web")["spec"]["minAvailable"] == "99%", foreign.all
    lab.kubectl("patch", "pdb", "-n", NAMESPACE, "web", "--type=merge", "-p", '{"spec":{"minAvailable":"100%"}}')
    back = undone(run_of(worse), *data(force="true"))
    assert back.code == 0 and get(lab, "pdb", "web")["spec"] == found["spec"], back.all


def record_of(told: Outcome) -> str:
    """The text of the run's record: proofs in tables are cut."""
    found = re.search(r"Record of the run: (\S+)", told.out)
    assert found, told.all
    with open(found.group(1)) as file:
        return file.read()


def test_undo_of_each_action(lab: Lab) -> None:
    first = run(disruption_budgets={f"{NAMESPACE}/web": WEB, f"{NAMESPACE}/db": {"workload": "sts/db", "max_unavailable": 1}})
    assert first.code == 0 and names(lab) == {"web", "db"}, first.all
    before = {name: get(lab, "pdb", name)["spec"] for name in ("web", "db")}
    second = run(disruption_budgets={f"{NAMESPACE}/web": {"workload": "deploy/web", "min_available": 1}, f"{NAMESPACE}/db": "absent"})
    assert second.code == 0 and names(lab) == {"web"}, second.all
    assert get(lab, "pdb", "web")["spec"] == {"minAvailable": 1, "selector": of_app("web")}
    undone(run_of(second)).ended(0)
    assert {name: get(lab, "pdb", name)["spec"] for name in ("web", "db")} == before
    gone = undone(run_of(first), "--data", "force=true")
    assert gone.code == 0 and not names(lab), gone.all


def test_refused_before_any_write(lab: Lab) -> None:
    wrong_one = {f"{NAMESPACE}/a": {"workload": "deployment/wep", "max_unavailable": 1}}
    refused(run(disruption_budgets=wrong_one), "Deployment t-budgets/wep does not exist", "did you mean 'web'?")
    apply(lab, budget("theirs", selector=of_app("web"), maxUnavailable=1))
    agent = {"workload": "daemonset/agent", "max_unavailable": 1}
    told = run(disruption_budgets={f"{NAMESPACE}/web": WEB, f"{NAMESPACE}/agent": agent})
    refused(told, "answers each eviction with 500", "allow_overlaps=true", "daemonsets.apps does not implement the scale subresource")
    refused(run(disruption_budgets=f"{NAMESPACE}/theirs=absent"), "daytwo removes only budgets that it owns")
    assert names(lab) == {"theirs"}
    moved = run(disruption_budgets={f"{NAMESPACE}/web": WEB, f"{NAMESPACE}/theirs": "absent"}, force="true")
    assert moved.code == 0 and names(lab) == {"web"}, moved.all


# ---- the lint


def problems(lab: Lab, stopped: str = "nothing") -> dict[str, set[tuple[str, str]]]:
    """The findings of the audit about this module's objects: rules by severity, with the main object. `stopped`: what cannot answer now."""
    told = pyinfra("audit", "--data", "format=json")
    assert told.code in (0, 2), told.all
    report = json.loads(told.out)
    assert not [one for one in report["not_known"] if stopped not in one] and not report["failures"], told.all
    found: dict[str, set[tuple[str, str]]] = {}
    for one in report["findings"]:
        if one["kind"] == "disruption" and (NAMESPACE in one["value"] or "t-hooks" in one["value"]):
            assert one["rule"] and one["way_out"]
            found.setdefault(one["value"].partition(":")[0], set()).add((one["severity"], one["name"].replace(f"{NAMESPACE}/", "")))
    return found


def planted(lab: Lab) -> list[dict[str, Any]]:
    nodes = [node for node in get(lab, "nodes")["items"] if not node["spec"].get("taints")]
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": of_app("each")}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    on_w1 = {
        "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["w1"]}]}]}
    }
    local = {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "local": {"path": "/var/tmp"}, "nodeAffinity": on_w1}
    claim = {
        "volumeName": "t-local",
        "storageClassName": "",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Mi"}},
    }
    service = {"namespace": NAMESPACE, "name": "hook", "path": "/"}
    rule = {"apiGroups": [GROUP], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["nothings"]}
    hook = {
        "name": f"h.{GROUP}",
        "clientConfig": {"service": service},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    scale = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "scaled"}, "minReplicas": 1, "maxReplicas": 5}
    meta = {"namespace": NAMESPACE}
    return [
        workload("Deployment", "each", len(nodes), affinity=affinity),
        workload("Deployment", "scaled", 3),
        workload("Deployment", "pinned", 2, nodeSelector={"kubernetes.io/hostname": "w1"}),
        workload("Deployment", "back", 1, tolerations=[{"operator": "Exists"}]),
        bare("slow", "slow", terminationGracePeriodSeconds=700),
        bare("path", "path", volumes=[{"name": "v", "hostPath": {"path": "/var/tmp"}}]),
        bare("local", "local", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "local"}}]),
        bare("hook-1", "hook"),
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "t-local"}, "spec": {**local, "storageClassName": ""}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {**meta, "name": "local"}, "spec": claim},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {**meta, "name": "hook"},
            "spec": {"selector": {"app": "hook"}, "ports": [{"port": 443}]},
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "t-hooks"},
            "webhooks": [hook],
        },
        {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {**meta, "name": "scaled"}, "spec": scale},
        budget("web", selector=of_app("web"), maxUnavailable=0),
        budget("db", selector=of_app("db"), minAvailable=2),
        budget("set", selector=of_app("set"), maxUnavailable=1),
        budget("set-2", selector=of_app("set"), maxUnavailable=1),
        budget("nothing", selector=of_app("nothing"), maxUnavailable=1),
        budget("all", EMPTY, selector={}, maxUnavailable=1),
        budget("agent", selector=of_app("agent"), maxUnavailable=1),
        budget("unready", selector=of_app("unready"), maxUnavailable=1),
        budget("crash", selector=of_app("crash"), maxUnavailable=1),
        budget("scaled", selector=of_app("scaled"), minAvailable=1),
        budget("pinned", selector=of_app("pinned"), maxUnavailable=1),
        budget("each", selector=of_app("each"), maxUnavailable=1),
    ]


def test_each_rule_is_named_and_gone_after_its_advice(lab: Lab) -> None:
    lab.kubectl("delete", "pod", "-n", NAMESPACE, "held", "--wait=false")
    apply(lab, *planted(lab))
    try:
        for name in ("each", "scaled", "pinned", "back"):
            lab.kubectl("rollout", "status", "-n", NAMESPACE, f"deployment/{name}", "--timeout=280s")
        wait_for(lambda: get(lab, "pod", "hook-1")["status"]["phase"] == "Running", "the webhook's pod")
        lab.kubectl("wait", "--for=condition=Ready", "-n", NAMESPACE, "pod/hook-1", "--timeout=280s")
        agreed(lab)
        held = datetime.fromisoformat(get(lab, "pod", "held")["metadata"]["deletionTimestamp"])
        wait_for(lambda: datetime.now(UTC) - held > timedelta(seconds=61), "a pod that should be gone for a minute")
        found = problems(lab)
        critical = {rule: {name for severity, name in found[rule] if severity == "critical"} for rule in found}
        budgets = "PodDisruptionBudget"
        assert {rule: set(names_) for rule, names_ in critical.items() if names_} == {
            "allows-none": {f"{budgets} web"},
            "needs-all": {f"{budgets} db"},
            "two-budgets": {f"{budgets} set"},
            "no-scale": {f"{budgets} agent"},
            "unhealthy-deadlock": {f"{budgets} crash"},
        }
        for rule, severity, name in (
            ("needs-autoscaler-minimum", "warning", f"{budgets} scaled"),
            ("selects-nothing", "warning", f"{budgets} nothing"),
            ("selects-everything", "warning", f"{budgets} {EMPTY}/all"),
            ("none-left", "warning", f"{budgets} unready"),
            ("waves", "note", f"{budgets} pinned"),
            ("no-place", "warning", f"{budgets} pinned"),
            ("unprotected", "warning", "Deployment pinned"),
            ("no-node-left", "warning", f"{budgets} each"),
            ("tied-to-node", "warning", "Pod local"),
            ("tied-to-node", "note", "Pod path"),
            ("unprotected", "note", "Deployment back"),
            ("slow-to-end", "note", "Pod slow"),
            ("slow-to-end", "warning", "Pod held"),
            ("webhook-backend", "warning", "ValidatingWebhookConfiguration t-hooks"),
        ):
            assert (severity, name) in found.get(rule, ()), (rule, found)
        assert any(severity == "warning" for severity, _ in found["comes-back"])
        advised(lab)
        left = problems(lab)
        assert set(left) <= {"unprotected", "waves", "none-left", "tied-to-node", "no-place"}, left
        assert {name for _, name in left.get("none-left", ())} <= {f"{budgets} crash"}, left
        assert "Pod local" not in {name for _, name in left.get("tied-to-node", ())}
    finally:
        lab.kubectl("delete", "validatingwebhookconfiguration", "t-hooks", "--ignore-not-found")
        lab.kubectl("delete", "hpa,service,pvc", "-n", NAMESPACE, "--all", "--wait=false")
        lab.kubectl("delete", "pv", "t-local", "--wait=false", "--ignore-not-found")
        lab.kubectl("delete", "deployment", "-n", NAMESPACE, "each", "scaled", "pinned", "back", "--ignore-not-found")
        lab.kubectl("delete", "pods", "-n", NAMESPACE, "slow", "path", "local", "hook-1", "--now", "--ignore-not-found", "--wait=false")


def advised(lab: Lab) -> None:
    """Do what each finding says."""
    one = {"max_unavailable": 1}
    wanted: dict[str, Any] = {
        "web": {"workload": "deployment/web", **one},
        "db": {"workload": "statefulset/db", **one},
        "set-2": "absent",
        "nothing": "absent",
        "agent": {"workload": "daemonset/agent", "min_available": 0},
        "crash": {"workload": "deployment/crash", **one, "unhealthy_pod_eviction_policy": "AlwaysAllow"},
        "scaled": {"workload": "deployment/scaled", **one},
    }
    run(
        disruption_budgets={**{f"{NAMESPACE}/{key}": value for key, value in wanted.items()}, f"{EMPTY}/all": "absent"}, force="true"
    ).ended(0)
    container = {"name": "app", "readinessProbe": None}
    ready = json.dumps({"spec": {"template": {"spec": {"containers": [container]}}}})
    lab.kubectl("patch", "deployment", "-n", NAMESPACE, "unready", "--type=strategic", "-p", ready)
    lab.kubectl("scale", "deployment", "-n", NAMESPACE, "each", "--replicas=1")
    tolerant = json.dumps([{"op": "remove", "path": "/spec/template/spec/tolerations"}])
    lab.kubectl("patch", "deployment", "-n", NAMESPACE, "back", "--type=json", "-p", tolerant)
    for name in ("unready", "each", "back"):
        lab.kubectl("rollout", "status", "-n", NAMESPACE, f"deployment/{name}", "--timeout=280s")
    lab.kubectl("delete", "pods", "-n", NAMESPACE, "slow", "local", "--now", "--wait")
    lab.kubectl("delete", "validatingwebhookconfiguration", "t-hooks")
    lab.kubectl("patch", "pod", "-n", NAMESPACE, "held", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    lab.kubectl("wait", "-n", NAMESPACE, "--for=delete", "pod/held", "--timeout=120s")
    agreed(lab)


# ---- last: kube-controller-manager does not answer


def test_what_is_not_proven_is_reverted(lab: Lab) -> None:
    assert run(disruption_budgets={f"{NAMESPACE}/db": {"workload": "sts/db", "max_unavailable": 1}}).code == 0
    before = get(lab, "pdb", "db")["spec"]
    with lab.frozen("cp1", "kube-controller-manager"):
        told = run(disruption_budgets={f"{NAMESPACE}/db": {"workload": "sts/db", "min_available": 1}}, proof_timeout="2")
        assert told.code != 0 and "not proven after" in told.all and "what this run wrote is reverted" in " ".join(told.all.split()), (
            told.all
        )
        done(told, "db", "reverted")
        assert get(lab, "pdb", "db")["spec"] == before
        told = run(disruption_budgets={f"{NAMESPACE}/web": WEB}, proof_timeout="2")
        done(told, "web", "reverted")
        assert names(lab) == {"db"}
        assert ("warning", "PodDisruptionBudget db") in problems(lab, "kube-controller-manager")["not-computed"], (
            "its spec has changed twice since its status"
        )
    # It has lost its lease, and ends; the next one would watch the old lease for 15 s.
    lab.kubectl("delete", "lease", "-n", "kube-system", "kube-controller-manager")
    agreed(lab)
