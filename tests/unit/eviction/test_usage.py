"""Containers' processes from /proc: paths as both cgroup drivers and the runtimes write them, and the script itself, run here."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.engine.node import ObservationError
from roles.eviction import usage

UID = "0f0e5b6c-53a4-4b4b-9f4f-0123456789ab"
UNDERSCORES = UID.replace("-", "_")
STATIC = "8ab1c2d3e4f5061728394a5b6c7d8e9f"
ID = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4


@pytest.mark.parametrize(
    ("cgroup", "found"),
    [
        (f"/kubepods/burstable/pod{UID}/{ID}", (UID, ID)),
        (f"/kubepods/pod{UID}/{ID}", (UID, ID)),
        (f"/kubepods/burstable/pod{STATIC}/{ID}", (STATIC, ID)),
        (f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORES}.slice/cri-containerd-{ID}.scope", (UID, ID)),
        (f"/kubepods.slice/kubepods-pod{UNDERSCORES}.slice/crio-{ID}.scope", (UID, ID)),
        (f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{STATIC}.slice/docker-{ID}.scope", (STATIC, ID)),
        (f"/system.slice/containerd.service/kubepods-burstable-pod{UNDERSCORES}.slice:cri-containerd:{ID}", (UID, ID)),
        # A different root (--cgroup-root, a node in a container), and a cgroup that the container created inside itself.
        (f"/lab/w1/payload/kubepods.slice/kubepods-pod{UNDERSCORES}.slice/cri-containerd-{ID}.scope", (UID, ID)),
        (f"/docker/{OTHER}/kubelet/kubepods/burstable/pod{UID}/{ID}/init.scope", (UID, ID)),
        (f"/kubepods.slice/kubepods-pod{UNDERSCORES}.slice/crio-conmon-{ID}.scope", None),
        (f"/kubepods/burstable/pod{UID}", None),
        (f"/kubepods/burstable/podman/{ID}", None),
        ("/user.slice/user-0.slice/session-1.scope", None),
        ("/", None),
    ],
)
def test_pod_and_container_of_a_cgroup(cgroup: str, found: tuple[str, str] | None) -> None:
    assert usage.container_of(cgroup) == found


def test_the_first_process_of_a_container_counts() -> None:
    lines = [
        f"process 300 9000 0 /kubepods/pod{UID}/{ID}",  # executed later
        f"process 31 100 -997 /kubepods/pod{UID}/{ID}",
        f"process 30 100 -996 /kubepods/pod{UID}/{ID}",
        f"process 7 50 1000 /kubepods/burstable/pod{STATIC}/{OTHER}",
        "process 1 1 0 /init.scope",
        "end",
    ]
    assert usage.parse("n1", lines) == (usage.ContainerProcess(UID, ID, 30, -996), usage.ContainerProcess(STATIC, OTHER, 7, 1000))


@pytest.mark.parametrize(
    "lines", [[], [f"process 1 2 3 /kubepods/pod{UID}/{ID}"], ["process 1 2 end", "end"], ["sh: grep: not found", "end"]]
)
def test_half_an_answer_is_an_error(lines: list[str]) -> None:
    with pytest.raises(ObservationError, match="n1"):
        usage.parse("n1", lines)


@given(st.lists(st.text(st.characters(exclude_characters="\n"))))
def test_any_lines_end_in_a_result_or_its_error(lines: list[str]) -> None:
    try:
        usage.parse("n1", lines)
    except ObservationError as error:
        assert str(error).startswith("n1")


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_script_runs(shell: str) -> None:
    """Whatever runs on this machine: the answer is complete and can be parsed."""
    done = subprocess.run([shell, "-s"], input=usage.script(), text=True, capture_output=True, check=True)
    assert done.stderr == ""
    usage.parse("here", done.stdout.splitlines())
