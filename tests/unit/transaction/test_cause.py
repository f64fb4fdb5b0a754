"""Whose words are the cause of a revert: the last ones of the process that failed, or systemd's where it had none."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from roles.engine.transaction import Status
from tests.unit.transaction.scratch import Scratch, status

COMMAND_FAILED = '"command failed" err="failed to run Kubelet: open /nope/a.crt: no such file or directory"'
RUNTIME_CONFIG = (
    '"RuntimeConfig from runtime service failed" err="rpc error: code = Unimplemented desc = method RuntimeConfig not implemented"'
)
IMAGE_LIST = '"Failed to update image list" err="rpc error: code = Canceled desc = context canceled"'
EXITED = "kubelet.service: Main process exited, code=exited, status=1/FAILURE"
RESULT = "kubelet.service: Failed with result 'exit-code'."
SANDBOX = '"Failed to create sandbox for pod" err="open /run/systemd/resolve/resolv.conf: no such file or directory" pod="kube-system/kube-apiserver-cp1"'
NO_API = (
    '"Failed creating a mirror pod" err="Post \\"https://10.0.0.1:6443/api/v1/namespaces/kube-system/pods\\": dial tcp 10.0.0.1:6443:'
    ' connect: connection refused" pod="kube-system/kube-apiserver-cp1"'
)
AGAIN = (
    '"Error syncing pod, skipping" err="failed to \\"StartContainer\\" for \\"kube-apiserver\\" with CrashLoopBackOff: \\"back-off 10s\\""'
    ' pod="kube-system/kube-apiserver-cp1" podUID="0123"'
)


def klog(pid: int, text: str, level: str = "E", place: str = "run.go:72") -> str:
    return f"{level}1126 10:00:01.431126 {pid:7} {place}] {text}"


def systemd(*texts: str) -> list[str]:
    return [f"journal: systemd[1]: {text}" for text in texts]


def by(pid: int, *texts: str, name: str = "kubelet") -> list[str]:
    return [f"journal: {name}[{pid}]: {text}" for text in texts]


def kubelet(pid: int, *texts: str, level: str = "E", place: str = "kubelet.go:1") -> list[str]:
    return by(pid, *(klog(pid, text, level, place) for text in texts))


HEALTHY = "before: " + klog(77, RUNTIME_CONFIG, place="kubelet.go:2")
STARTING = ["Starting kubelet.service - kubelet...", "Started kubelet.service - kubelet."]
STOPPED = ["Stopping kubelet.service...", "kubelet.service: Deactivated successfully.", "Stopped kubelet.service."]
PREFLIGHT = "kubelet-preflight: /etc/default/kubelet sets feature gates"
CONTROL = "kubelet.service: Control process exited, code=exited, status=1/FAILURE"

CASES: dict[str, tuple[list[str], str]] = {
    "a third process only starts": (
        [*kubelet(780, COMMAND_FAILED), *systemd(EXITED, RESULT, *STARTING), *kubelet(914, RUNTIME_CONFIG)],
        COMMAND_FAILED,
    ),
    "systemd's line comes before the last words": (
        [*kubelet(780, RUNTIME_CONFIG), *systemd(EXITED), *kubelet(780, COMMAND_FAILED), *kubelet(914, RUNTIME_CONFIG)],
        COMMAND_FAILED,
    ),
    "a preflight after words of the old one": (
        [
            *systemd(STOPPED[0]),
            *kubelet(77, IMAGE_LIST),
            *systemd(*STOPPED[1:], STARTING[0]),
            *by(80, PREFLIGHT, name="sh"),
            *systemd(CONTROL, RESULT),
        ],
        PREFLIGHT,
    ),
    "the old one speaks after its end": (
        [*kubelet(77, RUNTIME_CONFIG), *systemd(*STOPPED), *kubelet(77, IMAGE_LIST), *by(80, PREFLIGHT, name="sh"), *systemd(CONTROL)],
        PREFLIGHT,
    ),
    "an error that the healthy one had too": (
        [HEALTHY, *kubelet(780, '"Bad checkpoint" err="x"', RUNTIME_CONFIG), *systemd(EXITED)],
        '"Bad checkpoint" err="x"',
    ),
    "a panic, and its goroutines": (
        [*by(780, "panic: assignment to entry in nil map", "goroutine 1 [running]:", "main.main()"), *systemd(EXITED)],
        "panic: assignment to entry in nil map",
    ),
    "a fatal line": ([*kubelet(780, "cannot bind", level="F"), *systemd(EXITED), *kubelet(914, RUNTIME_CONFIG)], "cannot bind"),
    "JSON logs": (
        [*by(780, '{"ts":1,"v":0,"msg":"Starting"}', '{"ts":2,"msg":"command failed","err":"open /x"}'), *systemd(EXITED)],
        '{"ts":2,"msg":"command failed","err":"open /x"}',
    ),
    "another binary": (
        [*by(780, "kubelet.service: Failed at step EXEC spawning /usr/bin/kubelet: Exec format error", name="(kubelet)")]
        + systemd("kubelet.service: Main process exited, code=exited, status=203/EXEC", RESULT),
        "kubelet.service: Failed at step EXEC spawning /usr/bin/kubelet: Exec format error",
    ),
    "no directory": (
        systemd(
            "kubelet.service: Main process exited, code=exited, status=200/CHDIR",
            RESULT,
            "kubelet.service: Start request repeated too quickly.",
        ),
        "kubelet.service: Main process exited, code=exited, status=200/CHDIR",
    ),
    "no user": (
        systemd("kubelet.service: Main process exited, code=exited, status=217/USER"),
        "kubelet.service: Main process exited, code=exited, status=217/USER",
    ),
    "out of memory": (
        [*kubelet(780, RUNTIME_CONFIG), *systemd("kubelet.service: A process of this unit has been killed by the OOM killer.", RESULT)],
        "kubelet.service: A process of this unit has been killed by the OOM killer.",
    ),
    "a signal": (
        [*kubelet(780, RUNTIME_CONFIG), *systemd("kubelet.service: Main process exited, code=dumped, status=11/SEGV")],
        "kubelet.service: Main process exited, code=dumped, status=11/SEGV",
    ),
    "a start that hangs": (
        systemd(STARTING[0], "kubelet.service: start operation timed out. Terminating."),
        "kubelet.service: start operation timed out. Terminating.",
    ),
    "a dependency": (
        systemd(
            "Dependency failed for kubelet.service - kubelet.",
            "kubelet.service: Job kubelet.service/start failed with result 'dependency'.",
        ),
        "kubelet.service: Job kubelet.service/start failed with result 'dependency'.",
    ),
    "a condition": (
        systemd("kubelet.service - kubelet was skipped because of an unmet condition check (ConditionPathExists=/x)."),
        "kubelet.service - kubelet was skipped because of an unmet condition check (ConditionPathExists=/x).",
    ),
    "an environment file": (
        systemd(
            "kubelet.service: Failed to load environment files: No such file or directory", "kubelet.service: Failed to run 'start' task: x"
        ),
        "kubelet.service: Failed to load environment files: No such file or directory",
    ),
    "a process without a word": (systemd(*STARTING, EXITED, RESULT), EXITED),
    "too often": (systemd("kubelet.service: Start request repeated too quickly."), "kubelet.service: Start request repeated too quickly."),
    "a sandbox, not the API": ([*kubelet(50, NO_API, SANDBOX), *kubelet(50, AGAIN), *kubelet(50, NO_API)], SANDBOX),
    "an image": (
        kubelet(
            50,
            NO_API,
            '"Error syncing pod, skipping" err="failed to \\"StartContainer\\" with ErrImagePull: \\"not found\\"" pod="kube-system/a"',
        ),
        '"Error syncing pod, skipping" err="failed to \\"StartContainer\\" with ErrImagePull: \\"not found\\"" pod="kube-system/a"',
    ),
    "a manifest": (
        kubelet(50, NO_API, '"Could not process manifest file" err="couldn\'t parse as pod" path="/etc/kubernetes/manifests/a.yaml"'),
        '"Could not process manifest file" err="couldn\'t parse as pod" path="/etc/kubernetes/manifests/a.yaml"',
    ),
    "a probe": (
        kubelet(50, '"Probe failed" probeType="Startup" pod="kube-system/a" output="HTTP probe failed with statuscode: 500"', level="I"),
        '"Probe failed" probeType="Startup" pod="kube-system/a" output="HTTP probe failed with statuscode: 500"',
    ),
    "a container whose next one only starts": (
        [f"kube-apiserver[1]: {klog(1, COMMAND_FAILED)}", f"kube-apiserver[2]: {klog(1, RUNTIME_CONFIG)}", *kubelet(50, AGAIN)],
        COMMAND_FAILED,
    ),
    "a container's flag": (
        ["kube-scheduler: 2026-11-26T10:00:00.1Z stderr F Error: unknown flag: --nope", *kubelet(50, NO_API)],
        "Error: unknown flag: --nope",
    ),
    "a kubelet that ends while a manifest changes": (
        [*kubelet(50, NO_API, COMMAND_FAILED), *systemd(EXITED), *kubelet(60, SANDBOX)],
        COMMAND_FAILED,
    ),
    "nothing": ([], ""),
    "only what is normal": ([HEALTHY, *kubelet(914, RUNTIME_CONFIG)], ""),
    # ---- a pod's words, which the kubelet logs as it reads them
    "a pod that plays the kubelet": (
        [*kubelet(780, f'"Exec failed" err="{klog(914, COMMAND_FAILED.replace(chr(34), ""))}"', COMMAND_FAILED), *systemd(EXITED)],
        COMMAND_FAILED,
    ),
    "a pod that plays systemd": (
        [*kubelet(914, RUNTIME_CONFIG), *by(914, "systemd[1]: " + EXITED, EXITED), HEALTHY],
        "",  # these are words of the kubelet that runs, and no error
    ),
}


@pytest.mark.parametrize(("evidence", "words"), CASES.values(), ids=CASES)
def test_the_cause_is_the_last_word_of_who_failed(evidence: list[str], words: str) -> None:
    assert Status(state="reverted", evidence=tuple(evidence)).error_line == words


@pytest.mark.parametrize(
    "name", [name for name in CASES if "plays" not in name and "another binary" not in name and "old one speaks" not in name]
)
def test_the_same_without_the_journals_speakers(name: str) -> None:
    """As somebody pastes it; klog's own PID is all that is left."""
    evidence, words = CASES[name]
    plain = [f"journal: {line.split(': ', 2)[2]}" if line.startswith("journal: ") else line for line in evidence]
    assert Status(state="reverted", evidence=tuple(plain)).error_line == words


def test_what_is_shown_ends_with_the_process_that_failed() -> None:
    evidence = [
        "before: E x",
        *kubelet(780, *(f'"Line {n}"' for n in range(20)), COMMAND_FAILED),
        *systemd(EXITED, RESULT, *STARTING),
        *kubelet(914, RUNTIME_CONFIG),
    ]
    shown = Status(state="reverted", evidence=tuple(evidence)).evidence_lines
    assert shown == [*evidence[14:22], *systemd(EXITED, RESULT)]


def stamped(at: int, who: str, text: str) -> str:
    return f"[{at:5}.123456] w1 {who}: {text}\n"


def gathered(node: Scratch) -> list[str]:
    return base64.b64decode(status(node).get("evidence", "")).decode().splitlines()


def test_the_node_gathers_by_speaker_since_the_change_began(node: Scratch) -> None:
    """With units that restart at once, sixty lines are all of a process that has not failed yet."""
    up = int(float(Path("/proc/uptime").read_text().split()[0])) + 100
    old = (node.root / "run/pid").read_text().strip()
    lines = [
        stamped(0, "kubelet[5]", klog(5, COMMAND_FAILED.replace("nope", "yesterday"))),
        stamped(up + 1, f"kubelet[{old}]", klog(int(old), IMAGE_LIST)),
        stamped(up + 1, "kubelet[780]", klog(780, "Starting", level="I")),
        stamped(up + 1, "kubelet[780]", "usage\n          systemd[1]: " + EXITED),
        *(stamped(up + 1, "kubelet[780]", f"  --flag-{n}") for n in range(100)),
        stamped(up + 1, "kubelet[780]", klog(780, COMMAND_FAILED)),
        stamped(up + 2, "systemd[1]", EXITED),
        *(stamped(up + 3, "kubelet[914]", klog(914, f"line {n}", level="I")) for n in range(500)),
        stamped(up + 3, "kubelet[914]", klog(914, RUNTIME_CONFIG)),
        *(stamped(up + 3, "kubelet[914]", klog(914, f"line {n}", level="I")) for n in range(500)),
    ]
    (node.root / "lines").write_text("".join(lines))
    node.hook("journalctl", 'case $* in *_PID=*) exit ;; esac; exec cat "$S/lines"\n')
    assert node.verb("apply") == 0 and node.verb("revert", "not proven") == 0
    found = gathered(node)
    assert len(found) < 80 and not any("yesterday" in line or IMAGE_LIST in line for line in found)
    assert "journal: kubelet[780]:           systemd[1]: " + EXITED in found, "it goes on with the line before"
    assert found[-1].endswith("line 499") and klog(914, RUNTIME_CONFIG) in found[-2]
    assert Status(state="reverted", evidence=tuple(found)).error_line == COMMAND_FAILED
    assert os.path.getsize(node.here / "evidence") < 100_000
