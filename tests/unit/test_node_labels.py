"""Labels and taints of nodes: what is refused, what others have set and is left alone, who would go, and that a run and its undoing are
the identity."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roles import node_labels
from roles.engine.api import Api, Conflict
from roles.engine.api.errors import Invalid, Owner
from roles.engine.context import Stage
from roles.engine.inputs import registry
from roles.engine.object_runs import ObjectRun, dry_run
from roles.engine.objects import ObjectPlan, Session, undo_plan
from roles.engine.transaction import ObjectsRecord, Refusal
from roles.node_labels import CAPABILITY, NodeWriter
from roles.node_labels import plan as planning
from tests.unit.apiserver import LOST, Server, first, lost_answers
from tests.unit.hosts import object_run, own_record
from tests.unit.labelled_nodes import PATH, TAINTS, labels_of, node, pod
from tests.unit.priority_classes.world import entry

CONTROL_PLANE = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
_runs = itertools.count(1)

pytestmark = pytest.mark.usefixtures("operator")


# ---- an API server that knows who owns which label, and the list of taints


class Nodes(Server):
    """One node, and its pods. `evicting`: its taints with NoExecute evict at once."""

    def __init__(self, item: dict[str, Any], *pods: dict[str, Any], evicting: bool = True) -> None:
        super().__init__({PATH: item, **{f"/api/v1/namespaces/shop/pods/{one['metadata']['name']}": one for one in pods}})
        self.evicting = evicting

    @property
    def item(self) -> dict[str, Any]:
        return self.objects[PATH]

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.item["metadata"]["labels"])

    @property
    def taints(self) -> list[str]:
        return [f"{one['key']}={one.get('value', '')}:{one['effect']}" for one in self.item["spec"]["taints"]]

    def others_write(self, manager: str = "kubectl", taint: str = "", **labels: str) -> None:
        """A write by another client, which becomes the only owner of the written fields."""
        item, owned = copy.deepcopy(self.item), dict[str, Any]()
        item["metadata"]["labels"] |= labels
        if taint:
            item["spec"]["taints"].append({"key": taint, "effect": "NoSchedule"})
            owned |= TAINTS
        self._disown(item, labels, bool(taint))
        item["metadata"]["managedFields"].append(entry(manager, {**labels_of(*labels), **owned}, "Update"))
        self.put(PATH, item)

    def _answer(self, verb: str, item: dict[str, Any], dry_run: bool) -> dict[str, Any]:
        if dry_run:
            return item
        if item != self.item:
            item = self.put(PATH, item)
        if self.evicting and any(one["effect"] == "NoExecute" for one in item["spec"]["taints"]):
            for path in [path for path in self.objects if "/pods/" in path]:
                del self.objects[path]
        self._turn("after", verb, PATH)
        return copy.deepcopy(item)

    @staticmethod
    def _disown(item: dict[str, Any], labels: Mapping[str, Any], taints: bool, manager: str = "") -> None:
        """Remove all owners of these; with a `manager`, only its own apply."""
        for one in item["metadata"]["managedFields"]:
            if manager and (one["manager"], one["operation"]) != (manager, "Apply"):
                continue
            for key in labels:
                one["fieldsV1"].get("f:metadata", {}).get("f:labels", {}).pop(f"f:{key}", None)
            if taints:
                one["fieldsV1"].pop("f:spec", None)

    def apply(
        self, path: str, manifest: Mapping[str, Any], timeout: float = 0, *, force: bool = False, dry_run: bool = False, wait: float = 0
    ) -> dict[str, Any]:
        item = self._checked("APPLY", path, manifest) or {}
        assert "spec" not in manifest, "a manager that applies the list of taints owns those of all others"
        has, new = item["metadata"]["labels"], manifest["metadata"].get("labels") or {}
        owners = {key: planning.NODE.owners(item, ("metadata", "labels", key)) for key in {*has, *new}}
        taken = {key: value for key, value in new.items() if has.get(key) != value}
        if not force and (theirs := [Owner(one, key) for key in taken for one in owners[key] if one != "daytwo"]):
            error = Conflict("cp1", path, f"409 Conflict: {theirs[0].field} is owned by {theirs[0].manager!r}", "--data force=true")
            error.owners = tuple(theirs)
            raise error
        self._disown(item, taken, taints=False)
        left = [key for key in has if owners[key] == ["daytwo"] and key not in new]
        item["metadata"]["labels"] = {key: value for key, value in has.items() if key not in left} | new
        fields = item["metadata"]["managedFields"]
        fields[:] = [one for one in fields if (one["manager"], one["operation"]) != ("daytwo", "Apply")]
        fields.append(entry("daytwo", labels_of(*new)))
        return self._answer("APPLY", item, dry_run)

    def patch(
        self, path: str, changes: Mapping[str, Any], timeout: float = 0, *, dry_run: bool = False, wait: float = 0
    ) -> dict[str, Any]:  # fmt: skip
        item = self._checked("PATCH", path, changes) or {}
        gone = changes["metadata"].get("labels") or {}
        assert not any(gone.values()), "labels are set by an apply"
        self._disown(item, gone, "spec" in changes)
        for key in gone:
            item["metadata"]["labels"].pop(key, None)
        if "spec" in changes:
            item["spec"]["taints"] = copy.deepcopy(changes["spec"]["taints"])
            item["metadata"]["managedFields"].append(entry("daytwo", TAINTS, "Update"))
        return self._answer("PATCH", item, dry_run)

    @property
    def api(self) -> Api:
        return cast("Api", self)


# ---- a run, as in the deploy


def wanted(**data: Any) -> dict[str, planning.DesiredLabels]:
    return planning.read_labels([("w1", data.get)])


def pods_of(server: Server) -> dict[str, Any]:
    return {PATH: [one for path, one in server.objects.items() if "/pods/" in path]}


def planned(server: Nodes, **data: Any) -> ObjectPlan:
    nodes = {PATH: copy.deepcopy(server.item)} if PATH in server.objects else {}
    return planning.plan_labels(wanted(**data), {"w1": "w1"}, nodes, pods_of(server))


def carried_out(server: Nodes, plan: ObjectPlan, force: bool = False) -> tuple[ObjectRun, ObjectsRecord]:
    """Run the plan to its end; returns the run and its record."""
    assert plan.refusals == []
    writer = NodeWriter(Session(lambda: server.api), force=force)
    plan.actions = dry_run(plan.actions, writer.session, writer.tried)
    run = object_run(Stage(writer.steps(plan.actions)), name=f"r{next(_runs)}", capability=CAPABILITY, warnings=writer.warnings)
    record = own_record(run)
    assert record is not None
    return run, record


def done(server: Nodes, **data: Any) -> ObjectsRecord:
    run, record = carried_out(server, planned(server, **data), bool(data.get("force")))
    assert [step.outcome for step in run.steps] == ["done"], run.halted
    return record


def back(server: Nodes, record: ObjectsRecord, force: bool = False, allow_evictions: bool = False) -> ObjectPlan:
    found = undo_plan(record, [planning.NODE], {PATH: copy.deepcopy(server.item)}, force=force)
    return planning.plan_undo(found, pods_of(server), force=force, allow_evictions=allow_evictions)


# ---- the data


def test_data_as_a_mapping_and_as_text_is_the_same() -> None:
    mapping = wanted(node_labels={"rack": "a1", "old": "absent"}, node_taints={"gpu": ["x:NoSchedule", ":NoExecute"], "old": "absent"})
    text = wanted(node_labels="rack=a1,old=absent", node_taints="gpu=x:NoSchedule,gpu=:NoExecute,old=absent")
    assert mapping == text
    assert text["w1"].node_labels == {"rack": "a1", "old": None}
    assert text["w1"].node_taints == {"gpu": {"NoSchedule": "x", "NoExecute": ""}, "old": {}}
    assert wanted() == wanted(node_labels="") == {}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"node_labels": "a b=c"}, "'a b' is not a valid key"),
        ({"node_labels": {"-a": "c"}}, "'-a' is not a valid key"),
        ({"node_labels": {"A_B/c": "d"}}, "'A_B' before the '/' is not a DNS subdomain"),
        ({"node_labels": {"a": "x" * 64}}, "is not a valid value of a label"),
        ({"node_labels": {"a": 5}}, "5 is not text; write it in quotes"),
        ({"node_labels": "rack"}, "'rack' has no value; write rack=VALUE, or rack=absent"),
        ({"node_labels": "a=1,a=2"}, "a is given twice"),
        ({"node_labels": {"kubernetes.io/hostname": "x"}}, "managed by the kubelet"),
        ({"node_taints": {"a": "NoSchedule:x"}}, "NoSchedule:x is not VALUE:EFFECT"),
        ({"node_taints": {"a": "x:NoExec"}}, "effects are NoSchedule, PreferNoSchedule, NoExecute"),
        ({"node_taints": {"a": "b c:NoSchedule"}}, "is not a valid value of a label"),
        ({"node_taints": "a=x:NoSchedule,a=y:NoSchedule"}, "the effect NoSchedule is given twice"),
        ({"node_taints": {"node.kubernetes.io/unschedulable": ":NoSchedule"}}, "managed by a controller"),
        ({"node_taints": {"ToBeDeletedByClusterAutoscaler": ":NoSchedule"}}, "managed by a controller"),
    ],
)
def test_data_that_kubernetes_would_refuse_or_overwrite_is_refused(data: dict[str, Any], words: str) -> None:
    with pytest.raises(Refusal) as refused:
        wanted(**data)
    assert words in str(refused.value) and str(refused.value).startswith("w1: ")


@pytest.mark.parametrize("key", ["node-role.kubernetes.io/gpu", "node-restriction.kubernetes.io/team", "topology.kubernetes.io/zone"])
def test_prefixes_that_bind_only_kubelets_are_an_administrators_to_set(key: str) -> None:
    server = Nodes(node())
    done(server, node_labels={key: "x"})
    assert server.labels == {key: "x"}


def test_consents_apply_to_the_whole_run() -> None:
    hosts = [("w1", {"node_labels": "a=1", "force": "true"}.get), ("w2", {"node_labels": "a=1"}.get)]
    with pytest.raises(Refusal, match="w1, w2: force, allow_evictions or kubeconfig differs between these hosts"):
        planning.read_labels(hosts)


# ---- what is written, and what stays


def test_labels_that_are_not_named_stay() -> None:
    server = Nodes(node({"theirs": "1"}, [CONTROL_PLANE]))
    done(server, node_labels="rack=a1,none=absent", node_taints="dedicated=gpu:NoSchedule")
    assert server.labels == {"theirs": "1", "rack": "a1"}
    assert server.taints == ["node-role.kubernetes.io/control-plane=:NoSchedule", "dedicated=gpu:NoSchedule"]
    assert planning.NODE.owners(server.item, ("metadata", "labels", "rack")) == ["daytwo"]
    # The next run names another label: the old one stays.
    done(server, node_labels="row=3")
    assert server.labels == {"theirs": "1", "rack": "a1", "row": "3"}
    again = planned(server, node_labels="rack=a1,row=3", node_taints="dedicated=gpu:NoSchedule")
    assert again.actions == [] and again.unchanged == [("Node w1", "has these labels and taints already")]
    done(server, node_labels="rack=absent", node_taints="dedicated=absent", force="true")
    assert server.labels == {"theirs": "1", "row": "3"} and server.taints == ["node-role.kubernetes.io/control-plane=:NoSchedule"]


def test_a_key_has_the_effects_that_are_named() -> None:
    server = Nodes(node())
    done(server, node_taints="a=x:NoSchedule")
    done(server, node_taints="a=x:PreferNoSchedule")
    assert server.taints == ["a=x:PreferNoSchedule"]


def test_what_others_own_is_refused_without_force() -> None:
    server = Nodes(node({"theirs": "1"}, [CONTROL_PLANE]))
    plan = planned(server, node_labels="theirs=absent", node_taints="node-role.kubernetes.io/control-plane=absent")
    assert [text.split("; ")[0] for text in plan.refusals] == [
        "Node w1: metadata.labels.theirs: '1' -> not set: theirs is owned by kubelet (Update)",
        "Node w1: spec.taints.node-role.kubernetes.io/control-plane.NoSchedule: '' -> not set: the list of taints is owned by kubelet (Update)",
    ]
    changed = planned(server, node_labels="theirs=2")
    with pytest.raises(Exception, match=r"Node w1: .*theirs is owned by 'kubelet \(Update\)'"):
        carried_out(server, changed)
    assert server.labels == {"theirs": "1"}
    done(server, node_labels="theirs=absent", node_taints="node-role.kubernetes.io/control-plane=absent", force="true")
    assert server.labels == {} and server.taints == []


def test_no_taint_is_added_to_a_list_that_another_manager_applies() -> None:
    server = Nodes(node(taints=[CONTROL_PLANE]))
    server.item["metadata"]["managedFields"] = [entry("flux", TAINTS)]
    assert "owned by flux" in planned(server, node_taints="a=:NoSchedule").refusals[0]


def test_a_node_that_does_not_exist_is_refused() -> None:
    server = Nodes(node())
    del server.objects[PATH]
    assert planned(server, node_labels="a=1").refusals == ["w1: the cluster has no Node w1"]


def test_a_taint_that_is_added_during_the_write_survives() -> None:
    server = Nodes(node())
    turns = iter(["node.kubernetes.io/unschedulable"])

    def meddle(when: str, verb: str, path: str) -> None:
        # Not during the dry run.
        if (when, verb) == ("before", "PATCH") and len(server.log) > 1 and (taint := next(turns, "")):
            server.others_write("kube-controller-manager", taint)

    server.meddle = meddle
    done(server, node_taints="dedicated=gpu:NoSchedule")
    assert server.taints == ["node.kubernetes.io/unschedulable=:NoSchedule", "dedicated=gpu:NoSchedule"]
    assert server.log.count(("PATCH", PATH)) == 3, "the dry run, the refused write, and the applied write"


@pytest.mark.parametrize("verb", ["APPLY", "PATCH"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", LOST)
def test_a_lost_answer_changes_nothing(error: Exception, when: str, verb: str) -> None:
    server = Nodes(node())
    plan = planned(server, node_labels="rack=a1", node_taints="dedicated=gpu:NoSchedule")
    server.lose = first(error, when, verb)
    run, _ = carried_out(server, plan)
    assert [step.outcome for step in run.steps] == ["done"], run.halted
    assert server.labels == {"rack": "a1"} and server.taints == ["dedicated=gpu:NoSchedule"]


def test_a_taint_that_is_added_while_an_answer_is_lost_survives() -> None:
    """The labels are written, the answer is lost, and the list of taints has changed when the node is read again."""
    server = Nodes(node())
    plan = planned(server, node_labels="rack=a1", node_taints="dedicated=gpu:NoSchedule")
    server.lose = first(lost_answers()[0], "after", "APPLY")
    server.meddle = lambda when, verb, path: server.others_write(taint="theirs") if (when, verb) == ("after", "APPLY") else None
    run, _ = carried_out(server, plan)
    assert [step.outcome for step in run.steps] == ["done"], run.halted
    assert server.taints == ["theirs=:NoSchedule", "dedicated=gpu:NoSchedule"]


def test_a_partial_write_is_reverted_if_the_rest_is_refused() -> None:
    server = Nodes(node({"rack": "b"}))
    plan = planned(server, node_labels="rack=a1", node_taints="dedicated=gpu:NoSchedule", force="true")
    server.refuse = lambda verb, path, body: (
        Invalid("cp1", path, "422: a webhook", "-") if verb == "PATCH" and "resourceVersion" in body["metadata"] else None
    )
    run, record = carried_out(server, plan, force=True)
    assert [step.outcome for step in run.steps] == ["reverted"] and "a webhook" in run.steps[0].why
    assert server.labels == {"rack": "b"} and server.taints == []
    assert back(server, record).unchanged == [("Node w1", "that run reverted it")]


# ---- evicted pods


@pytest.mark.parametrize(
    ("toleration", "after"),
    [
        (None, 0),
        ({"operator": "Exists"}, None),
        ({"operator": "Exists", "effect": "NoExecute"}, None),
        ({"operator": "Exists", "effect": "NoSchedule"}, 0),
        ({"key": "a", "value": "x"}, None),
        ({"key": "a", "value": "y"}, 0),
        ({"key": "b", "operator": "Exists"}, 0),
        ({"key": "a", "operator": "Exists", "tolerationSeconds": 300}, 300),
        ({"key": "a", "operator": "Exists", "tolerationSeconds": -1}, 0),
        ({"key": "a", "operator": "Gt", "value": "x"}, 0),
    ],
)
def test_pods_that_would_be_evicted_are_named_and_need_consent(toleration: dict[str, Any] | None, after: int | None) -> None:
    server = Nodes(node(), pod("web", *([toleration] if toleration else [])))
    plan = planned(server, node_taints="a=x:NoExecute")
    found = [(one.name, one.after) for one in plan.actions[0].evicted]
    assert found == ([("shop/web", after)] if after is not None else [])
    assert bool(plan.refusals) == (after is not None)
    assert all("would evict shop/web" in text and "allow_evictions=true" in text for text in plan.refusals)
    assert planned(server, node_taints="a=x:NoExecute", allow_evictions="true").refusals == []
    assert planned(server, node_taints="a=x:NoSchedule").refusals == []


def test_the_proof_names_the_evicted_pods() -> None:
    server = Nodes(node(), pod("web"))
    run, _ = carried_out(server, planned(server, node_taints="a=x:NoExecute", allow_evictions="true"))
    assert run.steps[0].how.endswith("field manager daytwo; evicted: shop/web"), run.halted


def test_a_pod_that_is_not_evicted_is_a_warning() -> None:
    server = Nodes(node(), pod("web"), evicting=False)
    run, _ = carried_out(server, planned(server, node_taints="a=x:NoExecute", allow_evictions="true"))
    assert run.steps[0].how.endswith("1 pod STILL THERE") and not run.halted
    assert [text for _, text in run.warnings] == [
        "Node w1: shop/web: not evicted after 60 s; check kube-controller-manager, which evicts for taints"
    ]


def test_a_new_pod_since_the_plan_is_not_evicted() -> None:
    server = Nodes(node(), pod("web"))
    plan = planned(server, node_taints="a=x:NoExecute", allow_evictions="true")
    server.objects["/api/v1/namespaces/shop/pods/db"] = pod("db")
    run = object_run(Stage(NodeWriter(Session(lambda: server.api), force=False).steps(plan.actions)))
    assert "would also evict shop/db" in run.halted and server.taints == []


# ---- undoing


KEYS = st.sampled_from(["a", "b", "example.com/c"])
VALUES = st.sampled_from(["", "x", "y"])
EFFECTS = st.sampled_from(planning.EFFECTS)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    has=st.dictionaries(KEYS, VALUES),
    tainted=st.dictionaries(st.tuples(KEYS, EFFECTS), VALUES),
    labels=st.dictionaries(KEYS, VALUES | st.just("absent")),
    taints=st.dictionaries(KEYS, st.lists(st.tuples(VALUES, EFFECTS).map(":".join), max_size=2, unique_by=lambda one: one.split(":")[1])),
)
def test_a_run_and_its_undoing_are_the_identity(has: Any, tainted: Any, labels: Any, taints: Any) -> None:
    server = Nodes(node(has, [{"key": key, "effect": effect, "value": value} for (key, effect), value in tainted.items()]))
    server.others_write("other", taint="others", others="1")
    before = planning.labels_and_taints(server.item)
    plan = planned(server, node_labels=labels, node_taints=taints, force="true")
    if not plan.actions:
        return
    run, record = carried_out(server, plan, force=True)
    assert not run.halted
    assert planned(server, node_labels=labels, node_taints=taints, force="true").actions == []
    assert (
        planning.labels_and_taints(server.item).items()
        >= {("metadata", "labels", "others"): "1", ("spec", "taints", "others", "NoSchedule"): ""}.items()
    )
    undoing, undone = carried_out(server, back(server, record))
    assert not undoing.halted and planning.labels_and_taints(server.item) == before
    # The undo is a run, and can be undone.
    carried_out(server, back(server, undone))
    assert planned(server, node_labels=labels, node_taints=taints, force="true").actions == []


def test_what_others_have_added_since_stays_when_a_run_is_undone() -> None:
    server = Nodes(node())
    record = done(server, node_labels="rack=a1", node_taints="dedicated=gpu:NoSchedule")
    server.others_write("kube-controller-manager", taint="node.kubernetes.io/unschedulable", row="3")
    carried_out(server, back(server, record))
    assert server.labels == {"row": "3"} and server.taints == ["node.kubernetes.io/unschedulable=:NoSchedule"]


def test_what_others_have_changed_since_is_not_undone_without_force() -> None:
    server = Nodes(node())
    record = done(server, node_labels="rack=a1,row=3")
    server.others_write(rack="b2")
    assert back(server, record).refusals == [
        "Node w1: foreign: changed by someone else since: metadata.labels.rack is 'b2', and that run set it to 'a1' (owned by kubectl "
        "(Update)); undo that first, or overwrite it with --data force=true"
    ]
    carried_out(server, back(server, record, force=True), force=True)
    assert server.labels == {}


def test_a_label_that_others_now_own_too_is_not_removed() -> None:
    server = Nodes(node())
    record = done(server, node_labels="rack=a1")
    server.item["metadata"]["managedFields"].append(entry("flux", labels_of("rack")))
    assert "rack is owned by flux" in back(server, record).refusals[0]
    carried_out(server, back(server, record, force=True), force=True)
    assert server.labels == {}


def test_pods_that_a_restored_taint_evicts_need_consent() -> None:
    server = Nodes(node(taints=[{"key": "a", "effect": "NoExecute"}]), evicting=False)
    record = done(server, node_taints="a=absent", force="true")
    server.objects["/api/v1/namespaces/shop/pods/web"] = pod("web")
    assert "would evict shop/web at once" in back(server, record).refusals[0]
    assert back(server, record, allow_evictions=True).refusals == []


def test_the_rollback_deploy_finds_the_undo() -> None:
    undo = registry.undo_of(CAPABILITY)
    assert undo is not None and undo.plan is node_labels.undo
