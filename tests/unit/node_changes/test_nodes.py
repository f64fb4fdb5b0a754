"""The engine for changes of nodes, with the smallest capability there is: a file of the kubelet's to be written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pyinfra.api.exceptions import DeployError

from roles.engine.bridge import Fleet
from roles.engine.context import ClusterStep
from roles.engine.kubeadm_config import ClusterWrites
from roles.engine.kubelet import ask, kubelet_plan
from roles.engine.node_changes import (
    KUBELET,
    Basis,
    Capability,
    ComponentPlan,
    NodePlan,
    Steps,
    Verdicts,
    capability,
    change_nodes,
    ended,
    from_data,
)
from roles.engine.node_changes.run import NodeRun
from roles.engine.proof import Proof, Prover, SurveyedNode
from roles.engine.remote import Answer, RemoteError
from roles.engine.transaction import Refusal, Status, this_run
from tests.unit.node import node

PATH = "/etc/default/kubelet"
ACCEPTED = "error: invalid configuration: maxPods (--max-pods) -1 must not be a negative number,"
Plan = NodePlan[ComponentPlan]


class Host:
    """A worker that can be looked at; `says` is what its kubelet has against the candidate, and against its files as they are."""

    connected, is_control_plane, groups = True, False, ()

    def __init__(self, name: str, *says: str | Exception, **data: Any) -> None:
        self.name, self.data, self.asked = name, data.get, list[str]()
        self.says = list(says or ("",))
        self.unreachable = f"{name}: unreachable"
        # What stands in the way of its next start: nothing.
        self.start = ["start: epoch 1780000000", "start: end"]

    def run(self, script: str, *, stdin: str | None = None, timeout: float | None = None) -> Answer:
        if stdin is None:
            versions = "version 100" in script
            lines = [f"hostname {node.b64(self.name)}" if line.startswith("hostname ") else line for line in node.answer()]
            return Answer(0, [line for line in lines if line.startswith("version ") == versions], [])
        if "; answer " not in stdin:
            return Answer(0, self.start, [])
        self.asked.append(stdin)
        said = self.says.pop(0)
        if isinstance(said, Exception):
            raise said
        return Answer(0, [*self.start, f"answer kubelet 1 {node.b64(said or ACCEPTED).rstrip('=')}="], [])


@dataclass(frozen=True)
class Text:
    """What one host's data wants to stand in the file."""

    text: str
    chosen_nodes: tuple[str, ...] | None = None

    @property
    def data(self) -> dict[str, Any]:
        return {"text": self.text}


def read(remote: Any) -> Text | None:
    if remote.data("text") == "bad":
        raise Refusal(remote.name, "text=bad cannot be meant")
    return Text(remote.data("text"), remote.data("chosen_nodes")) if remote.data("text") else None


@dataclass(frozen=True)
class Texts(Capability[Text, Plan]):
    """`said` has what was called, in its order; `refuse` whose plan is refused when it is judged; `made` is written to the cluster."""

    said: list[str] = field(default_factory=list)
    refuse: str = ""
    made: ClusterWrites = field(default_factory=ClusterWrites)
    not_any_more: str | None = None
    columns = ("node", "component", "text")

    def plan(self, basis: Basis, node: SurveyedNode, request: Text) -> Plan:
        self.said.append(f"plan {node.seen.host}")
        if request.text == "never":
            raise Refusal(node.seen.host, "never")
        data: dict[str, bytes | None] = {PATH: f"KUBELET_EXTRA_ARGS=--v={request.text}\n".encode()}
        change = kubelet_plan.KubeletEdit(node.kubelet, data).change(basis.run_id, request.text) if request.text != "done" else None
        question = ask.ask_kubelet(node.kubelet, ("kubelet", f"--v={request.text}"), {}) if change else ""
        present = ask.ask_kubelet(node.kubelet, ("kubelet", "--v=present"), {})
        planned = ComponentPlan(KUBELET, change, question=question, question_present=present, settings={"text": request.text})
        return NodePlan(node.seen.host, node.kubelet, node.components, (planned,), ("beware",), f"    {request.text} is near")

    def against_nodes(self, basis: Basis) -> Iterable[object]:
        self.said.append("against nodes")
        return ()

    def judge(self, basis: Basis, plan: Plan, verdicts: Verdicts) -> Plan:
        self.said.append(f"judge {plan.host} {dict(verdicts.against)} {dict(verdicts.present)}")
        return replace(plan, refusals=(f"{plan.host}: refused late",)) if plan.host == self.refuse else plan

    def against_plans(self, basis: Basis, plans: Sequence[Plan]) -> Iterable[object]:
        self.said.append(f"against {len(plans)} plans")
        return ()

    def recheck(self, basis: Basis, plan: Plan, planned: ComponentPlan) -> str | None:
        return self.not_any_more

    def writes(self, basis: Basis, plans: Sequence[Plan]) -> ClusterWrites:
        return self.made

    def rows(self, basis: Basis, plans: Sequence[Plan], steps: Steps) -> list[list[str]]:
        return [
            [plan.host, KUBELET, self.desired.by_host[plan.host].text, *ended(steps.get((plan.host, KUBELET)), "seen")] for plan in plans
        ]


class First(Texts):
    """As undoing has it."""

    writes_first = True


def fleet(*hosts: Any, unreachable: Sequence[Any] = ()) -> Fleet:
    return Fleet([*hosts], [], [*unreachable], [*hosts, *unreachable])


def texts(kind: type[Texts] = Texts, **more: Any) -> Callable[[Fleet], Texts]:
    return lambda hosts: kind(from_data(hosts, read, "no host has a text"), **more)


def prepare(hosts: Fleet, read_texts: Callable[[Fleet], Texts]) -> NodeRun:
    return capability.prepare(hosts, read_texts(hosts))


def test_the_hosts_that_change_have_a_turn() -> None:
    hosts = fleet(Host("w1", text="1"), Host("w2", text="done"), Host("w3"))
    turns = change_nodes(hosts, texts()(hosts))
    assert ([*turns.hosts], turns.name) == (["w1"], "change and prove, or revert")


class More(Texts):
    """What it proves besides."""

    def also_prove(self, basis: Basis, plan: Plan, planned: ComponentPlan) -> Proof | None:
        return {"1": None, "2": Proof("and more"), "3": Proof("", ("not that",))}[self.desired.by_host[plan.host].text]


@pytest.mark.parametrize(
    ("text", "first", "proof"),
    [
        ("1", Proof("seen"), Proof("seen; would start again")),
        ("2", Proof("seen"), Proof("seen; and more; would start again")),
        ("3", Proof("seen"), Proof("seen", ("not that",))),
        ("3", Proof("seen", ("bad",)), Proof("seen", ("bad",))),
    ],
)
def test_a_capability_may_prove_more(monkeypatch: pytest.MonkeyPatch, text: str, first: Proof, proof: Proof) -> None:
    run = prepare(fleet(Host("w1", text=text)), texts(More))
    monkeypatch.setattr(Prover, "prove", lambda self, status: first)
    assert run.steps[0].prove(Status("applied")) == proof


def test_from_data_to_steps(printed: list[str]) -> None:
    hosts = [Host("w1", text="1"), Host("w2", text="2"), Host("w3", text="done"), Host("w4")]
    for host in hosts:
        known, host.data = host.data, {"soak": 7, "max_unavailable": 2, "confirm_timeout": 99}.get
        host.data = lambda key, known=known, run=host.data: known(key) or run(key)  # type: ignore[misc]
    run = prepare(fleet(*hosts), texts())
    assert [(stage.canary, [step.change.node for step in stage.steps]) for stage in run.stages] == [(True, ["w1"]), (False, ["w2"])]
    assert [(step.change.soak, step.change.confirm_timeout) for step in run.steps] == [(7, 106), (0, 99)]
    prover = run.steps[1].watch.__self__  # type: ignore[attr-defined]
    assert (prover._process.host, prover._process.node_name, prover._process.component) == ("w2", "w2", KUBELET)
    assert prover._owed.settings == {"text": "2"} and not prover._process.apiserver_changes
    assert run.info.data == this_run("r", {f"w{text}": {"text": text} for text in "12"} | {"w3": {"text": "done"}}).data
    assert [len(host.asked) for host in hosts] == [1, 1, 0, 0], "nobody is asked of what is as wanted"
    told = "\n".join(printed)
    assert "WARNING w1, w2, w3: beware\n" in told and "w1:\n    1 is near" in told


def test_what_is_called_in_which_order() -> None:
    said: list[str] = []
    prepare(fleet(Host("w1", text="1"), Host("w2", text="2")), texts(said=said))
    assert said == ["plan w1", "plan w2", "against nodes", "judge w1 {'kubelet': ''} {}", "judge w2 {'kubelet': ''} {}", "against 2 plans"]


def test_only_narrows_the_run_and_not_its_record() -> None:
    hosts = [Host("w1", text="1", chosen_nodes=("w2",)), Host("w2", text="2", chosen_nodes=("w2",))]
    run = prepare(fleet(*hosts), texts())
    assert [step.change.node for step in run.steps] == ["w2"]
    assert run.info.data == this_run("r", {f"w{text}": {"text": text} for text in "12"}).data
    with pytest.raises(DeployError, match="nodes: 'w7' is no host of this run; there are: w1, w2"):
        prepare(fleet(Host("w1", text="1", chosen_nodes=("w7",)), Host("w2")), texts())


def test_all_refusals_come_together_and_before_what_comes_next() -> None:
    with pytest.raises(DeployError) as refused:
        prepare(fleet(Host("w1", text="bad"), Host("w2", text="bad"), unreachable=[Host("w3")]), texts())
    assert "w1, w2: text=bad" in str(refused.value) and "w3: unreachable" in str(refused.value)
    with pytest.raises(DeployError, match="no host has a text"):
        prepare(fleet(Host("w1")), texts())
    said: list[str] = []
    hosts = [Host("w1", text="never"), Host("w2", text="2"), Host("w3", text="never")]
    with pytest.raises(DeployError, match="w1, w3: never"):
        prepare(fleet(*hosts), texts(said=said))
    assert said[-1] == "against nodes" and not any(host.asked for host in hosts)
    gone = RemoteError("w2: no answer within 1 s")
    with pytest.raises(DeployError, match=r"- w2: no answer within 1 s(.|\n)*- w3: refused late"):
        prepare(fleet(Host("w1", text="1"), Host("w2", gone, text="2"), Host("w3", text="3")), texts(said=said, refuse="w3"))


def test_who_refuses_the_change_is_shown_its_files_as_they_are() -> None:
    said: list[str] = []
    hosts = [Host("w1", "no", "not even that", text="1"), Host("w2", text="2"), Host("w3", "no", RemoteError("gone"), text="3")]
    prepare(fleet(*hosts), texts(said=said))
    assert ["--v=present" in question for question in hosts[0].asked] == [False, True] and len(hosts[1].asked) == 1
    assert said[4:7] == [
        "judge w1 {'kubelet': 'no'} {'kubelet': 'not even that'}",
        "judge w2 {'kubelet': ''} {}",
        "judge w3 {'kubelet': 'no'} {}",
    ]


def test_right_before_a_change_the_prover_is_asked_first_and_the_capability_then() -> None:
    host = Host("w1", text="1")
    (step,) = prepare(fleet(host), texts(not_any_more="not now")).steps
    assert (step.ready() or "").startswith("the API cannot be asked")
    host = Host("w1", text="1", allow_unproven=True)
    (step,) = prepare(fleet(host), texts(not_any_more="not now")).steps
    assert step.ready() == "not now"
    (step,) = prepare(fleet(Host("w1", text="1", allow_unproven=True)), texts()).steps
    assert step.ready() is None


@dataclass(frozen=True)
class Awaited(Texts):
    """A change that needs something of the cluster before it can be proven."""

    first: Proof = field(default_factory=lambda: Proof("a request was approved"))
    approvals: list[ClusterStep] = field(default_factory=list)

    def prove_first(self, basis: Basis, plan: Plan, planned: ComponentPlan) -> Proof:
        self.said.append(f"prove first {plan.host}")
        return self.first

    def before(self, basis: Basis, plans: Sequence[Plan]) -> list[ClusterStep]:
        return self.approvals


def test_what_a_change_needs_before_its_proof_comes_first_and_decides_too() -> None:
    said: list[str] = []
    (step,) = prepare(fleet(Host("w1", text="1")), texts(Awaited, said=said, first=Proof("", ("not its own",)))).steps
    status = Status("applied")
    assert step.prove(status).problems == ("not its own",), "without it nothing else is asked"
    (step,) = prepare(fleet(Host("w1", text="1")), texts(Awaited, said=said)).steps
    proof = step.prove(status)
    assert proof.how.endswith("; a request was approved") and proof.problems, "the API cannot be asked here"
    assert said[-1] == "prove first w1"


def test_what_comes_before_any_node_is_touched() -> None:
    approval = ClusterStep("csr-1", "approve it", "", lambda begin: "approved", "")
    run = prepare(fleet(Host("w1", text="done")), texts(Awaited, approvals=[approval]))
    assert run.first == [approval] and run.involves("w1"), "also without a change of a node"


@pytest.mark.parametrize("kind", [Texts, First])
def test_what_is_the_cluster_s_stands_in_the_table_where_it_is_done(kind: type[Texts], printed: list[str]) -> None:
    step = ClusterStep(
        "kubelet-config", "summary", "", lambda begin: "", "", undoes="r1-x", outcome="confirmed", how="read back", seconds=1.0
    )
    run = prepare(fleet(Host("w1", text="1")), texts(kind, made=ClusterWrites([step], ["a note"])))
    assert (run.first, run.last) == (([step], []) if kind is First else ([], [step]))
    assert "a note" in "\n".join(printed)
    (of_node,) = run.steps
    of_node.outcome, of_node.why, of_node.seconds = "reverted", "it was not well", 3.2
    printed.clear()
    run._finish()
    lines = printed[0].splitlines()[3:]
    rows = [
        ["w1", "kubelet", "1", "reverted", "3", "it was not well"],
        ["cluster", "kubelet-config", "r1-x", "confirmed", "1", "read back"],
    ]
    assert [line.split(None, 5) for line in lines] == (rows[::-1] if kind is First else rows)


def test_with_nothing_to_do_the_results_are_the_plan_s_end(printed: list[str]) -> None:
    run = prepare(fleet(Host("w1", text="done")), texts())
    assert run.steps == [] and not run.involves("w1")
    assert printed[-1].splitlines()[-1].split() == ["w1", "kubelet", "done", "no", "change", "0", "seen"]
