"""One look at a node: read back whole, or said to be cut short."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from roles.engine import control_plane, kubelet
from roles.engine.node import ObservationError
from roles.engine.node.look import rendered
from roles.engine.transaction import Refusal
from tests.unit.node import node
from tests.unit.node.node import parse


def test_a_node_is_read_back() -> None:
    seen = parse("n1", node.answer(manifests={"a.yaml": b"x: 1\n"}))
    assert (seen.uid, seen.hostname, seen.systemd, seen.uptime, seen.epoch) == (0, "node", "252", 1000.5, 1700000000)
    assert seen.kubelet is not None and seen.kubelet.argv == node.KUBEADM_ARGV and seen.kubelet.version == "v1.36.3"
    assert seen.started_at(seen.kubelet) == 1700000000 - (1000.5 - 50)
    assert seen.data("/var/lib/kubelet/config.yaml") == node.CONFIG
    assert seen.directories["/etc/kubernetes/manifests"] == ("a.yaml",)
    absent = seen.file("/etc/default/kubelet")
    assert absent is not None and absent.kind == "none" and absent.data is None
    assert seen.file("/never/looked/at") is None


@pytest.mark.parametrize("cut", [0, 1, 7, -1])
def test_a_look_that_was_cut_short_is_an_error(cut: int) -> None:
    with pytest.raises(ObservationError, match="n1"):
        parse("n1", node.answer()[:cut])


@pytest.mark.parametrize("line", ["file x", "process kubelet a b c d e", "unit"])
def test_a_garbled_line_is_an_error(line: str) -> None:
    with pytest.raises(ObservationError, match="n1: line"):
        parse("n1", node.answer(extra=[line]))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (node.file_line("/f", b"", kind="link"), "symbolic link"),
        (node.file_line("/f", b"", attributes="----i---"), "immutable"),
        (node.file_line("/f", b"", mountpoint="/f"), "bind mount"),
        (node.file_line("/f", None, kind="directory"), "regular file"),
    ],
)
def test_targets_that_a_rename_cannot_replace(line: str, why: str) -> None:
    file = parse("n1", node.answer(extra=[line])).file("/f")
    assert file is not None and why in (file.why_not_replaceable() or "")


def test_an_ordinary_target_can_be_replaced() -> None:
    file = parse("n1", node.answer()).file("/var/lib/kubelet/config.yaml")
    assert file is not None and file.why_not_replaceable() is None


def test_a_kubeadm_node() -> None:
    found = kubelet.find(parse("n1", node.answer()))
    assert (found.style, found.config_path, found.manifests, found.node_name) == (
        "kubeadm",
        "/var/lib/kubelet/config.yaml",
        "/etc/kubernetes/manifests",
        "node",
    )
    assert found.health_url == "http://127.0.0.1:10248/healthz"
    assert found.service.known_argv == node.KUBEADM_ARGV


def test_a_plain_node() -> None:
    found = kubelet.find(parse("n1", node.answer(style="plain")))
    assert found.style == "plain" and found.config_path == "/etc/kubernetes-node/kubelet.yaml"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"uid": 1000}, "needs root"),
        ({"needs_reload": "yes"}, "daemon-reload"),
        ({"tools": [tool for tool in node.TOOLS if tool != "flock"]}, "lacks flock"),
        ({"tools": [tool for tool in node.TOOLS if tool != "curl"]}, "none of curl"),
        ({"extra": [f"process k3s-server 9 1 {node.b64('k3s')}= {node.b64('x')}= {node.b64('k3s')}="]}, "k3s"),
        ({"files": {"/var/lib/kubelet/config.yaml": b"kind: Other\n"}}, "not a KubeletConfiguration"),
        ({"files": {"/var/lib/kubelet/config.yaml": node.CONFIG + b"featureGates: {A: 'true'}\n"}}, "not a boolean"),
        (
            {"files": {"/var/lib/kubelet/config.yaml": node.CONFIG + b"healthzPort: 0\n"}},
            "kubelet.service, /var/lib/kubelet/config.yaml: healthzPort: 0 disables .*set a port there",
        ),
    ],
)
def test_nodes_that_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(Refusal, match=words) as refused:
        kubelet.find(parse("n1", node.answer(**changes)))  # type: ignore[arg-type]
    assert str(refused.value).startswith("n1: ")


def test_a_second_look_is_asked_for_only_where_the_first_was_wrong() -> None:
    assert kubelet.wanted(parse("n1", node.answer())) == ([], [])
    moved = node.CONFIG.replace(b"/etc/kubernetes/manifests", b'"/srv/p\\u006fds"')
    assert kubelet.wanted(parse("n1", node.answer(files={"/var/lib/kubelet/config.yaml": moved}))) == ([], ["/srv/pods"])


HEAD = b"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
FOLDER = "/etc/kubelet.d"


def with_dropins(*files: str, lines: tuple[str, ...] = (), flag: str = f"--config-dir={FOLDER}") -> list[str]:
    """A kubeadm node whose kubelet reads these drop-ins."""
    named: dict[str, bytes | None] = {f"{FOLDER}/{name}": HEAD + f"maxPods: {number}\n".encode() for number, name in enumerate(files, 1)}
    return node.answer(argv=(*node.KUBEADM_ARGV, flag), files=named, extra=[f"directory {node.b64(FOLDER)}", *lines])


def test_drop_ins_are_read_in_the_order_in_which_the_kubelet_walks_them() -> None:
    # filepath.WalkDir goes by names, directory by directory: 10-a comes before 10-a.conf, though / sorts behind the dot.
    found = kubelet.find(parse("n1", with_dropins("10-a.conf", "10-a/99-z.conf", ".05-hidden.conf", "20-b/c/d.conf")))
    names = [path.removeprefix(f"{FOLDER}/") for path in found.dropin_paths]
    assert names == [".05-hidden.conf", "10-a/99-z.conf", "10-a.conf", "20-b/c/d.conf"]
    assert found.configuration["maxPods"] == 4


def test_drop_ins_count_without_a_configuration_file_too() -> None:
    argv = tuple(word for word in node.KUBEADM_ARGV if "--config=" not in word)
    files: dict[str, bytes | None] = {f"{FOLDER}/a.conf": HEAD + b"healthzPort: 10300\n"}
    extra = [f"directory {node.b64(FOLDER)}"]
    found = kubelet.find(parse("n1", node.answer(argv=(*argv, f"--config-dir={FOLDER}"), files=files, extra=extra)))
    assert found.configuration["healthzPort"] == 10300 and found.health_url == "http://127.0.0.1:10300/healthz"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([node.file_line(f"{FOLDER}/a.conf", None, kind="file")], f"{FOLDER}/a.conf: .*cannot be read now"),
        ([node.file_line(f"{FOLDER}/a.conf", None, kind="link")], f"{FOLDER}/a.conf: .*cannot be read now"),
        ([node.file_line(f"{FOLDER}/a.conf", b"")], f"{FOLDER}/a.conf: is empty"),
        ([node.file_line(FOLDER, None, kind="link")], "this is a symbolic link; the kubelet does not follow it"),
    ],
)
def test_drop_ins_that_the_kubelet_would_not_start_with(lines: list[str], words: str) -> None:
    with pytest.raises(Refusal, match=words):
        kubelet.find(parse("n1", with_dropins(lines=tuple(lines))))


def test_a_drop_in_directory_that_is_gone_is_refused() -> None:
    answer = node.answer(argv=(*node.KUBEADM_ARGV, f"--config-dir={FOLDER}"), extra=[node.file_line(FOLDER, None)])
    with pytest.raises(Refusal, match=f"this directory does not exist now.*mkdir -p {FOLDER}"):
        kubelet.find(parse("n1", answer))


def functions() -> str:
    """The functions of the script that looks at a node, without what it does."""
    script = rendered()
    return script[: script.index("printf 'daytwo 1")]


def test_the_look_walks_a_drop_in_directory_as_the_kubelet_does(tmp_path: Path) -> None:
    for name in ("10-a.conf", ".hidden.conf", "deep/er/20-b.conf", "notes.txt", "deep/x.conf.bak"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "elsewhere").symlink_to(tmp_path / "deep", target_is_directory=True)
    (tmp_path / "broken.conf").symlink_to(tmp_path / "nowhere")
    (tmp_path / "directory.conf").mkdir()
    answer = subprocess.run(
        ["sh", "-s"], input=f"{functions()}\nemit_tree '{tmp_path}'\nemit_queued\n", text=True, capture_output=True, check=True
    )
    seen = parse("n1", node.answer(extra=answer.stdout.splitlines()))
    read = {path.removeprefix(f"{tmp_path}/"): file.data for path, file in seen.files.items() if path.startswith(str(tmp_path))}
    assert read == {
        "10-a.conf": b"10-a.conf",
        ".hidden.conf": b".hidden.conf",
        "deep/er/20-b.conf": b"deep/er/20-b.conf",
        "broken.conf": None,
    }
    assert str(tmp_path) in seen.directories


def test_the_look_tells_that_the_directory_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    answer = subprocess.run(
        ["sh", "-s"], input=f"{functions()}\nemit_tree '{tmp_path}/link'\nemit_queued\n", text=True, capture_output=True, check=True
    )
    found = parse("n1", node.answer(extra=answer.stdout.splitlines())).file(f"{tmp_path}/link")
    assert found is not None and found.kind == "link"


def test_what_the_look_tells_of_each_kind_of_file(tmp_path: Path) -> None:
    """One after another, so that what is remembered of one is no other's."""
    limit = 1 << 20
    # A name may be anything: a line end in it begins no record.
    contents = {"plain": b"a\nb", "empty": b"", "two words *": b"x\n", "line\nend": b"y", "edge": bytes(limit), "big": bytes(limit + 1)}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "plain").chmod(0o4640)
    os.utime(tmp_path / "plain", (1, 1234567))
    (tmp_path / "folder").mkdir()
    for name, target in {"link": "plain", "big link": "big", "dangling": "nowhere", "to folder": "folder"}.items():
        (tmp_path / name).symlink_to(target)
    os.mkfifo(tmp_path / "pipe")
    names = ["plain", "link", "/proc/version", "empty", "gone", "two words *", "line\nend", "dangling", "edge", "big", "big link"]
    paths = [str(tmp_path / name) for name in (*names, "folder", "to folder", "pipe", "/proc")]
    script = f'{functions()}\nfor path; do emit_file "$path"; done\nemit_queued\n'
    answer = subprocess.run(["sh", "-c", script, "sh", *paths], text=True, capture_output=True, check=True)
    assert answer.stderr == ""
    seen = parse("n1", node.answer(extra=answer.stdout.splitlines()))
    for path in paths:
        file, there = seen.file(path), Path(path)
        assert file is not None
        if path.endswith("/gone"):
            assert (file.kind, file.mode, file.mtime, file.mountpoint, file.data) == ("none", 0, 0, "", None)
            continue
        kinds = [there.is_symlink() and "link", there.is_file() and "file", there.is_dir() and "directory", "other"]
        stat = there.lstat()
        told = (file.kind, file.mode, file.uid, file.gid)
        assert told == (next(filter(None, kinds)), stat.st_mode & 0o7777, stat.st_uid, stat.st_gid), path
        # The kernel has a new time for what is in /proc whenever it likes.
        assert file.mtime == int(stat.st_mtime) or path.startswith("/proc"), path
        mount = next(parent for parent in (there, *there.parents) if parent.is_mount())
        assert file.mountpoint == str(mount) and "\n" not in file.attributes, path
        small = there.is_file() and there.stat().st_size <= limit
        assert file.data == (there.read_bytes() if small else None), path


def test_a_component_between_two_starts_matters_where_it_is_to_be_changed() -> None:
    manifests = {"kube-apiserver.yaml": node.manifest("kube-apiserver"), "kube-scheduler.yaml": node.manifest("kube-scheduler")}
    found = kubelet.find(parse("n1", node.answer(manifests=manifests, components={"kube-apiserver": ("kube-apiserver",)})))
    assert "defines a kube-scheduler, but none runs on the node" in str(control_plane.look(found).refusals["kube-scheduler"])
    assert list(control_plane.find(found)) == ["kube-apiserver"]
    alone = kubelet.find(parse("n1", node.answer(manifests=manifests)))
    with pytest.raises(Refusal, match="defines a kube-apiserver, but none runs"):
        control_plane.find(alone)


def test_a_file_that_cannot_be_read_is_not_taken_for_an_empty_one() -> None:
    # A process's memory cannot be read from its start, whoever asks.
    script = f"{functions()}\nemit_file /proc/self/mem\nemit_queued\n"
    answer = subprocess.run(["sh", "-c", script], text=True, capture_output=True, check=True)
    seen = parse("n1", node.answer(extra=answer.stdout.splitlines()))
    unreadable = seen.file("/proc/self/mem")
    assert answer.stderr == "" and unreadable is not None and (unreadable.kind, unreadable.data) == ("file", None)


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_files_are_read_together_and_each_keeps_its_bytes(tmp_path: Path, shell: str) -> None:
    """Odd names and contents, and files that one of which cannot be read with the others."""
    contents = {"a": b"", "b it's": b"\0\xff\n", "c\nd": b"two lines\n", "e": b"file x\nend\n", "f$(x)*": b"x" * 70_000}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    together = f"emit_directory '{tmp_path}'\nemit_queued\n"
    alone = f"emit_together() {{ false; }}\n{together}"
    for calls in (together, alone):
        answer = subprocess.run([shell, "-s"], input=f"{functions()}\n{calls}", text=True, capture_output=True, check=True)
        seen = parse("n1", node.answer(extra=answer.stdout.splitlines()))
        assert {name: seen.data(str(tmp_path / name)) for name in contents} == contents and answer.stderr == ""
        assert seen.directories[str(tmp_path)] == tuple(sorted(contents))
    (tmp_path / "g").write_bytes(b"y" * 1_100_000)
    answer = subprocess.run([shell, "-s"], input=f"{functions()}\n{together}", text=True, capture_output=True, check=True)
    seen = parse("n1", node.answer(extra=answer.stdout.splitlines()))
    assert seen.data(str(tmp_path / "e")) == contents["e"] and seen.data(str(tmp_path / "g")) is None


def test_contents_of_another_length_are_an_error() -> None:
    line = node.file_line("/f", b"").rsplit(" ", 1)[0] + " @3"
    for lines in ([line], [line, f"contents {node.b64('ab')}="]):
        with pytest.raises(ObservationError, match="n1"):
            parse("n1", node.answer(extra=lines))
