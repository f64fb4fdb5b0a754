"""Static pod manifests: any flag of a container, and files of the node in it, edited in place."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from roles.engine.editing import FormatError, manifest, manifest_parts, yaml_text

NAME = "kube-scheduler"
PATH = "/etc/kubernetes/scheduler-config.yaml"
KUBEADM = f"""apiVersion: v1
kind: Pod
metadata:
  creationTimestamp: null
  labels:
    component: {NAME}
  name: {NAME}
  namespace: kube-system
spec:
  containers:
  - command:
    - {NAME}
    - --leader-elect=true # why
    - --kubeconfig=/etc/kubernetes/scheduler.conf
    image: x
    name: {NAME}
    volumeMounts:
    - mountPath: /etc/kubernetes/scheduler.conf
      name: kubeconfig
      readOnly: true
  # the end
  hostNetwork: true
  volumes:
  - hostPath:
      path: /etc/kubernetes/scheduler.conf
      type: FileOrCreate
    name: kubeconfig
status: {{}}
"""
BARE = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {NAME}}}\nspec:\n  containers:\n  - name: {NAME}\n    args: [{NAME}, '--v=2']\n    command: []\n"
ANNOTATED = KUBEADM.replace("  labels:\n", "  annotations:\n    seccomp: x\n  labels:\n")
JSON = '{"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "kube-scheduler", "command": ["kube-scheduler"]}]}}\n'
TEXTS = [KUBEADM, BARE, ANNOTATED, JSON, KUBEADM.replace("\n", "\r\n"), KUBEADM.removesuffix("\n")]


def edit(text: str, flags: dict[str, tuple[str, ...] | None], mounts: dict[str, bool], stamp: str | None = None) -> str:
    return manifest_parts.edit(text.encode(), NAME, flags, mounts, stamp).decode()


def test_a_flag_and_its_file() -> None:
    after = edit(KUBEADM, {"config": (PATH,), "leader-elect": ("false",)}, {PATH: True})
    assert "    - --leader-elect=false # why\n" in after
    assert f"    - --kubeconfig=/etc/kubernetes/scheduler.conf\n    - --config={PATH}\n    image: x\n" in after
    name = manifest_parts.volume_name(PATH)
    assert f"      readOnly: true\n    - mountPath: {PATH}\n      name: {name}\n      readOnly: true\n  # the end\n" in after
    assert after.endswith(f"    name: kubeconfig\n  - hostPath:\n      path: {PATH}\n      type: File\n    name: {name}\nstatus: {{}}\n")
    assert manifest_parts.mounted(after.encode(), NAME, PATH) and not manifest_parts.mounted(KUBEADM.encode(), NAME, PATH)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("stamp", [None, "abc"])
def test_an_edit_and_its_reverse_are_the_identity(text: str, stamp: str | None) -> None:
    flags = {"config": (PATH,), "list": ("a,b", "c: #d", "it's")}
    after = edit(text, flags, {PATH: True, "/srv/policy.yaml": True}, stamp)
    assert after != text and edit(after, flags, {PATH: True}, stamp) == after
    assert yaml_text.load(after.encode())["spec"]["volumes"][-1]["hostPath"] == {"path": "/srv/policy.yaml", "type": "File"}
    back = edit(after, dict.fromkeys(flags), {PATH: False, "/srv/policy.yaml": False}, None if stamp is None else "")
    assert back == text


@given(
    st.dictionaries(
        st.sampled_from(["v", "leader-elect", "new", "config"]),
        st.none()
        | st.lists(st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1), min_size=1, max_size=2).map(tuple),
    ),
    st.sampled_from(TEXTS),
)
def test_flags_of_any_value_are_written_and_nothing_else_changes(flags: dict[str, tuple[str, ...] | None], text: str) -> None:
    try:
        after = edit(text, flags, {})
    except FormatError:
        return
    old, new = (yaml_text.load(one.encode()) for one in (text, after))
    argv = manifest.container_argv(after.encode(), NAME)
    for name, values in flags.items():
        assert (
            [word.partition("=")[2] for word in argv if word.startswith(f"--{name}=")] == list(values or ())
            or text is BARE
            or values is None
        )
    for content in (old, new):
        content["spec"]["containers"][0].pop("command", None), content["spec"]["containers"][0].pop("args", None)
    assert old == new
    kept = [line for line in text.splitlines() if not line.strip().startswith(("- --", "args:", '{"kind"'))]
    assert [line for line in after.splitlines() if line in kept] == kept


def test_a_changed_file_that_is_mounted_gets_another_pod() -> None:
    mounted = edit(KUBEADM, {}, {PATH: True})
    stamped = edit(mounted, {}, {PATH: True}, "one")
    assert f"  annotations:\n    {manifest_parts.ANNOTATION}: one\n" in stamped
    assert edit(stamped, {}, {PATH: True}, "two") == stamped.replace(": one\n", ": two\n")


def test_a_file_below_a_mounted_directory_needs_no_mount() -> None:
    text = KUBEADM.replace("/etc/kubernetes/scheduler.conf\n      name", "/etc/kubernetes\n      name").replace(
        "      path: /etc/kubernetes/scheduler.conf\n      type: FileOrCreate", "      path: /etc/kubernetes"
    )
    assert manifest_parts.mounted(text.encode(), NAME, PATH) and not manifest_parts.mounted_alone(text.encode(), NAME, PATH)
    assert edit(text, {}, {PATH: True}) == text == edit(text, {}, {PATH: False})


def test_something_else_at_the_place_is_refused() -> None:
    other = KUBEADM.replace("mountPath: /etc/kubernetes/scheduler.conf", "mountPath: /etc/kubernetes")
    with pytest.raises(FormatError, match=r"something else is mounted at /etc/kubernetes: /etc/kubernetes/scheduler\.conf"):
        edit(other, {}, {PATH: True})


def test_an_anchor_that_is_used_elsewhere_is_refused() -> None:
    text = KUBEADM.replace("volumeMounts:\n", "volumeMounts: &m\n").replace("  hostNetwork: true\n", "  hostNetwork: true\n  x: *m\n")
    with pytest.raises(FormatError, match="anchor"):
        edit(text, {}, {PATH: True})
