"""A manifests directory as it is found: which file is a component's, and what else may lie there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from roles import history
from roles.engine import control_plane, kubelet
from roles.engine.control_plane import COMPONENTS, ControlPlane
from roles.engine.node.parse import parse
from roles.engine.node_changes import NodePlan
from roles.engine.transaction import FileEdit, Refusal
from roles.feature_gates import DesiredGates, NodeGates, plan_gates
from roles.history import Undo
from tests.unit.control_plane.company import COMPANY, FOLDER, pod
from tests.unit.history.world import change, recorded
from tests.unit.node import node
from tests.unit.node.surveyed import surveyed

ON = DesiredGates(feature_gates={"A": True}, all_components=True)
RUNNING = {name: (name, "--v=2") for name in COMPONENTS}
MANIFESTS = {f"{name}.yaml": node.manifest(*argv) for name, argv in RUNNING.items()}
FLAG = "--feature-gates=A=true"


NO_PODS = {name for name in COMPANY if not name.startswith(("kube-vip", "nginx", "haproxy"))}


def look(manifests: Mapping[str, bytes], running: Mapping[str, Sequence[str]] = RUNNING, **answer: Any) -> ControlPlane:
    return control_plane.look(kubelet.find(parse("n1", node.answer(manifests=manifests, components=running, **answer))))


def plan(manifests: Mapping[str, bytes], desired: DesiredGates = ON, **answer: Any) -> NodeGates:
    return plan_gates("r1", surveyed(parse("n1", node.answer(**{"manifests": manifests, "components": RUNNING, **answer}))), desired)


def edited(made: NodeGates) -> dict[str, bytes | None]:
    return {
        edit.path.removeprefix(f"{FOLDER}/"): edit.after
        for planned in made.planned
        if planned.change and planned.component != "kubelet"
        for edit in planned.change.files
    }


@pytest.mark.parametrize("name", COMPANY)
def test_company_keeps_nobody_from_a_change(name: str) -> None:
    found = look({**MANIFESTS, name: COMPANY[name]})
    assert list(found.components) == list(COMPONENTS) and found.refusals == {}
    assert edited(plan({**MANIFESTS, name: COMPANY[name]})) == edited(plan(MANIFESTS))
    assert len(found.warnings) == (name in NO_PODS)
    assert all(name in warning and len(warning) < 400 for warning in found.warnings)


@pytest.mark.parametrize("name", COMPANY)
def test_company_on_a_worker_keeps_nobody_from_a_change(name: str) -> None:
    manifests = {name: COMPANY[name]}
    found = look(manifests, {})
    assert (found.components, found.refusals) == ({}, {})
    assert plan(manifests, components={}).planned[0].change is not None


def test_all_company_at_once_is_one_short_warning() -> None:
    manifests = {**MANIFESTS, **COMPANY, **{f"z{number}": b"\x00" for number in range(1000)}}
    (warning,) = look(manifests).warnings
    assert warning.startswith(f"{FOLDER}: daytwo does not understand these files as manifests, and leaves them as they are: README (")
    assert len(warning) < 1000 and "and 1005 more" in warning
    assert list(edited(plan(manifests))) == [f"{name}.yaml" for name in COMPONENTS]


@pytest.mark.parametrize(
    "line",
    [
        node.file_line(f"{FOLDER}/old", None, "directory"),
        node.file_line(f"{FOLDER}/kube-proxy.yaml", None, "link"),
        node.file_line(f"{FOLDER}/kube-apiserver.yaml.old", None, "link"),
        node.file_line(f"{FOLDER}/kube-apiserver.d", None, "directory"),
        node.file_line(f"{FOLDER}/pipe", None, "other"),
        node.file_line(f"{FOLDER}/huge.yaml", None, "file"),
        node.file_line(f"{FOLDER}/large.yaml", b"a: 1\n" * 100_000),
        node.file_line(f"{FOLDER}/\x1b]52;c;aGk=\x07\u202e\n.yaml", b"\x1b[2J: [\n"),
    ],
)
def test_what_cannot_be_read_is_named_and_left(line: str) -> None:
    found = look(MANIFESTS, extra=[line])
    assert list(found.components) == list(COMPONENTS) and found.refusals == {}
    (warning,) = found.warnings
    assert warning.isascii() and warning.isprintable() and len(warning) < 400
    assert edited(plan(MANIFESTS, extra=[line])) == edited(plan(MANIFESTS))


def test_hidden_files_are_not_read() -> None:
    hidden = [f"hidden {node.b64(f'{FOLDER}/.kube-apiserver.yaml.swp')}"]
    assert look(MANIFESTS, extra=hidden) == look(MANIFESTS)


# ---- a component is known by the binary that it runs


def test_whatever_its_container_pod_and_file_are_called() -> None:
    manifests = {
        f"{number}.conf": pod(f"p{number}", f"/usr/local/bin/{name}", "--v=2", container="main") for number, name in enumerate(COMPONENTS)
    }
    running = {name: (f"/usr/local/bin/{name}", "--v=2") for name in COMPONENTS}
    made = plan(manifests, components=running, pods={name: f"p{number}" for number, name in enumerate(COMPONENTS)})
    assert made.warnings == ()
    for number, name in enumerate(COMPONENTS):
        (change,) = (planned.change for planned in made.planned if planned.component == name)
        assert change is not None and change.container == "main" and change.pod == f"kube-system_p{number}-node"
        assert change.files[0].path == f"{FOLDER}/{number}.conf"
        assert change.files[0].after == manifests[f"{number}.conf"].replace(b"'--v=2'\n", f"'--v=2'\n    - '{FLAG}'\n".encode())
        assert change.new_argv == (f"/usr/local/bin/{name}", "--v=2", FLAG)


def test_a_name_alone_makes_no_component() -> None:
    manifests = {**MANIFESTS, "other.yaml": pod("other", "sleep", container="kube-apiserver")}
    assert edited(plan(manifests)) == edited(plan(MANIFESTS))
    assert look({"kube-apiserver.yaml": pod("kube-apiserver", "sleep")}, {}) == ControlPlane({}, {}, ())


THROUGH = {
    "through sh": pod("kube-scheduler", "/bin/sh", "-c", "exec kube-scheduler --v=2"),
    "through go-runner": pod("kube-scheduler", "/go-runner", args=["--log-file=/x", "kube-scheduler", "--v=2"]),
    "by its image's own entry point": pod("kube-scheduler", args=["kube-scheduler", "--v=2"]),
}


@pytest.mark.parametrize("way", THROUGH)
def test_one_that_is_started_through_something_else_is_named_and_left(way: str) -> None:
    manifests = {**MANIFESTS, "kube-scheduler.yaml": THROUGH[way]}
    found = look(manifests)
    assert list(found.components) == list(COMPONENTS), "it runs, and can be asked"
    (warning,) = found.warnings
    assert warning.startswith(f"kube-scheduler is left as it is: {FOLDER}/kube-scheduler.yaml starts kube-scheduler {way}")
    with pytest.raises(Refusal, match=re.escape(way) + ".* begin with kube-scheduler itself, or exclude kube-scheduler with components="):
        plan(manifests)
    others = DesiredGates(feature_gates={"A": True}, all_components=True, components=("kube-apiserver", "kubelet"))
    assert list(edited(plan(manifests, others))) == ["kube-apiserver.yaml"]


def test_one_whose_manifest_is_unknown_is_refused_only_where_it_is_to_be_changed() -> None:
    for spoilt in (None, b"kind: Pod\nspec: [\n", MANIFESTS["kube-apiserver.yaml"] + b"---\nkind: Pod\n"):
        manifests = (
            {**MANIFESTS, "kube-apiserver.yaml": spoilt}
            if spoilt
            else {name: data for name, data in MANIFESTS.items() if "api" not in name}
        )
        found = look(manifests)
        assert found.components["kube-apiserver"].address == ("127.0.0.1", 6443), "the way to the API is not lost"
        with pytest.raises(Refusal, match=r"kube-apiserver runs as a static pod, and no manifest in .* has such a container"):
            plan(manifests)
        for component in ("kubelet", "kube-scheduler"):
            narrowed = DesiredGates(feature_gates={"A": True}, all_components=True, components=(component,))
            assert plan(manifests, narrowed).planned[0].change is not None


def test_a_manifest_that_is_broken_and_whose_process_has_gone_is_not_passed_over() -> None:
    manifests = {**MANIFESTS, "kube-scheduler.yaml": b"kind: Pod\nspec: [\n"}
    running = {name: argv for name, argv in RUNNING.items() if name != "kube-scheduler"}
    with pytest.raises(Refusal, match=r"kube-scheduler does not run, and no manifest in .*\(/etc.*kube-scheduler.yaml: .*is not YAML"):
        plan(manifests, components=running)
    # On a worker it is no component's.
    assert look({"kube-scheduler.yaml": b"kind: Pod\nspec: [\n"}, {}).refusals == {}


# ---- more than one


def test_a_second_scheduler_is_left_as_it_is() -> None:
    second = pod("my-scheduler", "kube-scheduler", "--config=/etc/my.yaml")
    for name in ("a.yaml", "my-scheduler.yaml", "z"):
        manifests = {**MANIFESTS, name: second}
        made = plan(manifests)
        assert edited(made) == edited(plan(MANIFESTS))
        assert made.warnings == (f"{name} also defines a kube-scheduler, as the pod kube-system/my-scheduler: it is left as it is",)


@pytest.mark.parametrize("first", [True, False])
def test_of_two_schedulers_the_process_is_the_one_with_the_arguments(first: bool) -> None:
    manifests = {**MANIFESTS, "my-scheduler.yaml": pod("my-scheduler", "kube-scheduler", "--config=/etc/my.yaml")}
    other = _process(150 if first else 250, "kube-scheduler", "--config=/etc/my.yaml")
    lines = node.answer(manifests=manifests, components=RUNNING)
    lines = [*lines[:9], other, *lines[9:]] if first else [*lines[:-1], other, "end"]
    found = control_plane.look(kubelet.find(parse("n1", lines)))
    assert found.components["kube-scheduler"].process.argv == RUNNING["kube-scheduler"] and found.refusals == {}
    # The node's own is not there: the other one's process is not taken for it.
    running = {**RUNNING, "kube-scheduler": ("kube-scheduler", "--config=/etc/my.yaml")}
    assert "it is not clear which process of that name belongs to it (PID 202)" in str(look(manifests, running).refusals["kube-scheduler"])


def _process(pid: int, *argv: str) -> str:
    cgroup = f"0::/kubepods/pod{pid:032x}/" + "b" * 64
    words = "".join(f"{word}\0" for word in argv)
    return f"process {argv[0][:15]} {pid} 7000 {node.b64(words)}= {node.b64(cgroup)}= {node.b64(argv[0])}="


NOT_CLEAR: dict[str, tuple[dict[str, bytes], str]] = {
    "a backup of the same pod": ({"kube-scheduler.yaml~": MANIFESTS["kube-scheduler.yaml"]}, "both define a kube-scheduler, as the pod"),
    "a backup that sorts before": ({"a-kube-scheduler.bak": MANIFESTS["kube-scheduler.yaml"]}, "both define a kube-scheduler, as the pod"),
    "the same pod, of another program": ({"x.yaml": pod("kube-scheduler", "sleep")}, "both define a kube-scheduler, as the pod"),
    "the same pod in a file of several documents": (
        {"x.yaml": MANIFESTS["kube-scheduler.yaml"] + b"---\na: 1\n"},
        "it is not clear whether .*x.yaml defines it too \\(line .*several YAML documents",
    ),
    "the same pod with a key twice": (
        {"x": MANIFESTS["kube-scheduler.yaml"].replace(b"kind: Pod\n", b"kind: Pod\nkind: Pod\n")},
        "is not clear whether .*x defines it too \\(.*occurs twice",
    ),
    "a file of that name that is too large to be read": (
        {"kube-scheduler.old": b"#" * 70_000 + b"\nkind: Pod\n# kube-scheduler\n"},
        r"is not clear whether .*kube-scheduler\.old defines it too \(has [0-9]+ bytes: daytwo reads manifests of 65536 at most",
    ),
    "two pods of other names": (
        {"kube-scheduler.yaml": pod("one", "kube-scheduler", "--v=2"), "x.yaml": pod("two", "kube-scheduler")},
        "may each define a kube-scheduler, and it is not clear which is the node's own",
    ),
    "the node's own through a shell": (
        {"kube-scheduler.yaml": THROUGH["through sh"], "x.yaml": pod("two", "kube-scheduler", "--v=2")},
        "may each define a kube-scheduler, and it is not clear which is the node's own",
    ),
    "the same name in another namespace": (
        {"kube-scheduler.yaml": pod("one", "kube-scheduler"), "x.yaml": pod("kube-scheduler", "kube-scheduler", namespace="default")},
        "may each define a kube-scheduler, and it is not clear which is the node's own",
    ),
    "two containers": (
        {"kube-scheduler.yaml": pod("kube-scheduler", "kube-scheduler") + b"  - {name: b, command: [kube-scheduler]}\n"},
        "2 of its containers run kube-scheduler",
    ),
}


@pytest.mark.parametrize("case", NOT_CLEAR)
def test_where_it_is_not_clear_which_is_the_nodes_own_nothing_of_it_is_edited(case: str) -> None:
    more, words = NOT_CLEAR[case]
    manifests = {**MANIFESTS, **more}
    assert list(look(manifests).components) == list(COMPONENTS)
    with pytest.raises(Refusal, match=words):
        plan(manifests)
    narrowed = DesiredGates(feature_gates={"A": True}, all_components=True, components=("kubelet", "kube-apiserver"))
    made = plan(manifests, narrowed)
    assert list(edited(made)) == ["kube-apiserver.yaml"]
    assert any(warning.startswith("kube-scheduler is left as it is: ") for warning in made.warnings)
    # Another file of a pod restarts it: the same is said between its two starts.
    away = {name: argv for name, argv in RUNNING.items() if name != "kube-scheduler"}
    assert any(warning.startswith("kube-scheduler is left as it is: ") for warning in plan(manifests, narrowed, components=away).warnings)


@pytest.mark.parametrize("force", [False, True])
def test_nothing_is_undone_where_another_file_makes_the_same_pod_by_now(force: bool) -> None:
    old = MANIFESTS["kube-scheduler.yaml"]
    new = old.replace(b"--v=2", b"--v=3")
    path = f"{FOLDER}/kube-scheduler.yaml"
    made = recorded(change("kube-scheduler", kind="static-pod", files=(FileEdit(path, old, new),)))

    def undo(more: dict[str, bytes]) -> NodePlan[Undo]:
        manifests = {**MANIFESTS, "kube-scheduler.yaml": new, **more}
        seen = parse("w1", node.answer(manifests=manifests, components=RUNNING))
        return history._plan("r2", surveyed(seen), [made], force)

    def put_back(plan: NodePlan[Undo]) -> bytes | None:
        (undone,) = plan.planned
        assert undone.change is not None and plan.refusals == ()
        return undone.change.files[0].after

    assert put_back(undo({})) == old
    if force:
        assert put_back(undo({"kube-scheduler.yaml~": old})) == old
        return
    (refusal,) = undo({"kube-scheduler.yaml~": old}).refusals
    assert "both define a kube-scheduler" in str(refusal)
