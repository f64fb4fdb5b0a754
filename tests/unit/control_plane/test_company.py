"""A control plane among other files: a component is known by what it runs, and what else lies there locks nobody out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from roles import control_plane, kubelet
from roles.change.refusal import Refusal
from roles.control_plane import COMPONENTS, Component
from roles.control_plane import plan as planning
from roles.formats import manifest
from roles.observe import parse
from tests.unit.observe import node

RUNNING = {name: (name, "--v=2") for name in COMPONENTS}
MANIFESTS = {f"{name}.yaml": node.manifest(*argv) for name, argv in RUNNING.items()}
APISERVER = MANIFESTS["kube-apiserver.yaml"]
WANTED = {"A": True}
KUBE_VIP = node.manifest("kube-vip", "manager")
NGINX_PROXY = node.manifest("nginx", "-g", "daemon off;").replace(b"name: nginx", b"name: nginx-proxy")
COMPANY: dict[str, bytes] = {
    "README": b"Static pods of this node.\nDo not edit: see the wiki.\n",
    "empty.yaml": b"",
    "comment.yaml": b"# was kube-vip\n",
    "half.yaml": b"apiVersion: v1\nkind: Pod\nspec: [\n",
    "no-pod.yaml": b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n",
    "two.yaml": KUBE_VIP + b"---\n" + NGINX_PROXY,
    "noise": b"\xff\xfe\x00",
    "kube-vip.yaml": KUBE_VIP,
    "nginx-proxy.yml": NGINX_PROXY,
    # Their containers have the name of a component, and run something else.
    "proxy.yaml": node.manifest("haproxy").replace(b"name: haproxy\n  hostNetwork", b"name: kube-apiserver\n  hostNetwork"),
    "words.yaml": b"apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c, command: [1, 2]}, 7]}\n",
}
SILENT = {"kube-vip.yaml", "nginx-proxy.yml", "proxy.yaml", "words.yaml"}


def look(manifests: Mapping[str, bytes], running: Mapping[str, Any] | None = None) -> kubelet.Kubelet:
    return kubelet.find(parse("n1", node.answer(manifests=manifests, components=RUNNING if running is None else running)))


def found(manifests: Mapping[str, bytes], **more: Any) -> dict[str, Component]:
    return control_plane.find(look(manifests, **more))


def test_the_company_of_the_manifests_locks_no_node_out() -> None:
    its = look({**MANIFESTS, **COMPANY})
    components = control_plane.find(its)
    assert list(components) == list(COMPONENTS) and not any(one.why_not for one in components.values())
    for name, one in components.items():
        assert planning.edit(one, WANTED) == MANIFESTS[f"{name}.yaml"].replace(b"--v=2\n", b"--v=2\n    - --feature-gates=A=true\n")
    told = control_plane.warnings(its)
    assert {name for name in COMPANY if any(f"/{name}" in warning for warning in told)} == {*COMPANY} - SILENT
    assert all("move it out of /etc/kubernetes/manifests" in warning for warning in told)


@pytest.mark.parametrize("name", ["kube-apiserver.yaml~", "kube-apiserver.yaml.bak", "#kube-apiserver.yaml#", "a-copy"])
def test_a_backup_of_a_manifest_keeps_only_its_own_pod_from_being_edited(name: str) -> None:
    """The kubelet reads it as a second manifest of the pod, and takes the last: an edit of the other would come to nothing."""
    its = look({**MANIFESTS, name: APISERVER})
    components = control_plane.find(its)
    with pytest.raises(Refusal, match="both make a kube-apiserver; the kubelet takes the last of them"):
        planning.edit(components["kube-apiserver"], WANTED)
    for other in COMPONENTS[1:]:
        assert b"A=true" in planning.edit(components[other], WANTED)
    (warning,) = control_plane.warnings(its)
    assert f"/{name}" in warning and "kube-apiserver.yaml" in warning and "all make the pod kube-system/kube-apiserver" in warning


@pytest.mark.parametrize("spoilt", [b"", b"a: [", b"kind: List\n", APISERVER[:60], b"apiVersion: v1\nkind: Pod\n"])
def test_a_manifest_that_cannot_be_read_is_refused_only_where_it_is_to_be_edited(spoilt: bytes) -> None:
    components = found({**MANIFESTS, "kube-apiserver.yaml": spoilt})
    assert list(components) == list(COMPONENTS)
    assert components["kube-apiserver"].process.argv == RUNNING["kube-apiserver"] == components["kube-apiserver"].argv
    assert components["kube-apiserver"].log_name == "kube-system_kube-apiserver-node"
    with pytest.raises(Refusal, match="no manifest in /etc/kubernetes/manifests has such a container"):
        planning.edit(components["kube-apiserver"], WANTED)
    assert b"A=true" in planning.edit(components["kube-scheduler"], WANTED)


@pytest.mark.parametrize("end", [b"---\n", b"...\n", b"---\n# end\n", b"...\n---\n", b"---\n---\n", b"--- # end\n"])
def test_a_document_s_end_is_no_second_document(end: bytes) -> None:
    component = found({**MANIFESTS, "kube-apiserver.yaml": APISERVER + end})["kube-apiserver"]
    after = planning.edit(component, WANTED)
    assert after == APISERVER.replace(b"--v=2\n", b"--v=2\n    - --feature-gates=A=true\n") + end


def renamed(container: str, *command: str) -> bytes:
    words = "".join(f"    - {word}\n" for word in command)
    return APISERVER.replace(b"    - kube-apiserver\n    - --v=2\n", words.encode()).replace(
        b"name: kube-apiserver\n  hostNetwork", f"name: {container}\n  hostNetwork".encode()
    )


@pytest.mark.parametrize(
    ("data", "argv", "container"),
    [
        (renamed("api", "kube-apiserver", "--v=2"), ("kube-apiserver", "--v=2"), "api"),
        (renamed("api", "/usr/local/bin/kube-apiserver", "--v=2"), ("/usr/local/bin/kube-apiserver", "--v=2"), "api"),
        # The image's own entry point, and a runner that starts the component.
        (renamed("api", "--v=2").replace(b"- command:", b"- args:"), ("kube-apiserver", "--v=2"), "api"),
        (renamed("api", "/go-runner", "--log-file=x", "kube-apiserver", "--v=2"), ("kube-apiserver", "--v=2"), "api"),
    ],
)
def test_a_component_is_known_by_the_binary_that_it_runs(data: bytes, argv: tuple[str, ...], container: str) -> None:
    component = found({**MANIFESTS, "kube-apiserver.yaml": data}, running={**RUNNING, "kube-apiserver": argv})["kube-apiserver"]
    assert component.container == container and not component.why_not
    assert planning.not_taken_up(component) == ""
    after = planning.edit(component, WANTED)
    assert manifest.container_argv(after, container)[-1] == "--feature-gates=A=true"
    assert planning.argv(component, component.data) == argv, "the process's own arguments, whatever starts it"
    assert planning.argv(component, after) == (*argv, "--feature-gates=A=true")


def test_of_several_containers_the_one_that_runs_it_is_meant() -> None:
    sidecar = b"  - command: [konnectivity]\n    image: y\n    name: kube-apiserver\n"
    data = renamed("api", "kube-apiserver", "--v=2").replace(b"  containers:\n", b"  containers:\n" + sidecar)
    assert found({**MANIFESTS, "kube-apiserver.yaml": data})["kube-apiserver"].container == "api"
    unsaid = renamed("api", "run.py").replace(b"  containers:\n", b"  containers:\n" + sidecar.replace(b"kube-apiserver", b"other"))
    with pytest.raises(Refusal, match=r"which of its containers \(other, api\) makes the kube-apiserver cannot be known"):
        planning.edit(found({**MANIFESTS, "kube-apiserver.yaml": unsaid})["kube-apiserver"], WANTED)


def test_one_that_does_not_run_is_refused_and_a_stray_one_is_not() -> None:
    down = {name: argv for name, argv in RUNNING.items() if name != "kube-scheduler"}
    with pytest.raises(Refusal, match=r"kube-scheduler\.yaml makes a kube-scheduler, and none runs on the node"):
        found(MANIFESTS, running=down)
    second = node.manifest("kube-scheduler", "--v=9").replace(b"  name: kube-scheduler\n", b"  name: second\n", 1)
    components = found({**MANIFESTS, "second.yaml": second})
    assert components["kube-scheduler"].file.path.endswith("/kube-scheduler.yaml"), "the other one never came up: its port is taken"


def test_a_worker_with_company_is_a_worker() -> None:
    its = look(COMPANY, running={})
    assert control_plane.find(its) == {} and len(control_plane.warnings(its)) == len(COMPANY) - len(SILENT)


# ---- any directory

_name = st.sampled_from(["kube-apiserver.yaml", "kube-apiserver.yaml~", "kube-scheduler.yaml", "README", "a", "zz.yml", ".hidden", "x.bak"])
_text = st.one_of(
    st.sampled_from([*MANIFESTS.values(), *COMPANY.values(), APISERVER + b"---\n", APISERVER[:150], APISERVER.replace(b"\n", b"\r\n")]),
    st.binary(max_size=60),
    st.text(st.sampled_from("ab:-[]{}'\"&*!|>\n #,?%@"), max_size=40).map(str.encode),
    st.builds(
        lambda kind, spec: b"apiVersion: v1\nkind: Pod\nmetadata: " + kind + b"\nspec: " + spec + b"\n",
        st.sampled_from([b"", b"7", b"[]", b"{name: 7}", b"{name: kube-apiserver, namespace: kube-system}"]),
        st.sampled_from(
            [b"", b"x", b"{containers: 7}", b"{containers: [x, {name: []}]}", b"{containers: [{command: [kube-apiserver, 7]}]}"]
        ),
    ),
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(_name, _text, max_size=6), st.sampled_from([{}, RUNNING, {"kube-apiserver": RUNNING["kube-apiserver"]}]))
def test_any_directory_is_looked_at_and_only_its_own_file_is_edited(files: dict[str, bytes], running: Mapping[str, Any]) -> None:
    """Whatever lies there: each component that runs is found; an edit is refused, or changes the arguments of that component alone."""
    its = look(files, running)
    told = control_plane.warnings(its)
    assert all(warning.startswith("/etc/kubernetes/manifests/") for warning in told)
    try:
        components = control_plane.find(its)
    except Refusal as refusal:
        assert "none runs on the node" in refusal.message and len(running) < len(COMPONENTS)
        return
    assert set(components) == set(running)
    for name, component in components.items():
        try:
            after = planning.edit(component, WANTED)
        except Refusal:
            continue
        assert component.file.data in files.values() and component.file.path.rpartition("/")[2] in files
        assert manifest.container_argv(after, component.container) == [*component.argv, "--feature-gates=A=true"], name
