"""Asking a node's binaries: none that is not proven to be its own, with nothing of ours, for a time, and leaving nothing behind.

A shell is the binary here: what it finds out of its surroundings is what a binary could.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.engine import kubelet
from roles.engine.editing import flags
from roles.engine.kubelet import ask, kubelet_plan, schema
from roles.engine.transaction import Refusal
from tests.lab.tools import wait_until
from tests.unit.node import node
from tests.unit.node.node import parse
from tests.unit.node.proc import DASHED, STATIC, Proc

SHELL = Path(shutil.which("dash") or "/bin/sh").resolve()
NOBODY = "65534"
LOOK_AROUND = 'id -u; id -G; env; echo fds $(ls /proc/self/fd); grep -E "CapEff|NoNewPrivs" /proc/self/status'


def is_over(pid: int) -> bool:
    """Whether this process has ended. One that nobody has waited for yet has no command line."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() == b""
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    made = Proc(tmp_path)
    made.add(100, "kubelet", cgroup="/system.slice/kubelet.service", unit="kubelet.service", program=SHELL)
    made.add(200, "kube-scheduler", cgroup=f"/kubepods/pod{STATIC}/x", program=SHELL)
    made.pod("kube-system_kube-scheduler-node", STATIC)
    for name in ("mnt", "uts", "ipc", "net", "pid"):
        (tmp_path / f"proc/200/ns/{name}").unlink(missing_ok=True)
        (tmp_path / f"proc/200/ns/{name}").symlink_to(f"/proc/{os.getpid()}/ns/{name}")
    return made


def asked(proc: Proc, question: str, seconds: float = ask.SECONDS) -> list[str]:
    """The lines of an answer to one question, `run FUNCTION ARGUMENT...`, each `said STATUS TEXT`."""
    run = 'run() { "$@"; printf "said %s %s\\n" "$?" "$(base64 -w 0 "$d/said")"; }\n'
    return proc.run(ask.script([run + question], seconds)).splitlines()


def said(proc: Proc, question: str, seconds: float = ask.SECONDS) -> tuple[int, str]:
    (line,) = asked(proc, question, seconds)
    _, status, text = f"{line} ".split(" ")[:3]
    return int(status), base64.b64decode(text).decode()


KUBELET = "run kubelet_plainly 100 10000 -c"
PLANNED = "run kubelet_as_planned 100 10000 -c"
SCHEDULER = "run inside kube-scheduler 200 20000 kube-system_kube-scheduler-node -c"


@pytest.mark.parametrize(("question", "user"), [(KUBELET, NOBODY), (SCHEDULER, NOBODY), (PLANNED, "0")])
def test_a_binary_gets_nothing_of_ours(proc: Proc, question: str, user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    status, text = said(proc, f"{question} '{LOOK_AROUND}'")
    assert status == 0 and "hunter2" not in text
    lines = text.splitlines()
    assert lines[0] == user and (user == "0" or lines[1] == NOBODY)
    assert re.search(r"CapEff:\s0000000000000000", text) and re.search(r"NoNewPrivs:\s1", text)
    environment = {line.partition("=")[0] for line in lines if re.match(r"[A-Z_]+=", line)}
    assert environment <= {"PATH", "PWD", "OLDPWD", "SHLVL", "_"}
    descriptors = next(line for line in lines if line.startswith("fds ")).split()[1:]
    # 3 is its own binary, and the last one what `ls` opens itself.
    assert set(descriptors) <= {"0", "1", "2", "3", "4"}


def test_a_component_is_asked_in_its_own_file_system_and_sees_none_of_the_nodes_processes_from_where_it_starts(proc: Proc) -> None:
    assert said(proc, f"{SCHEDULER} pwd") == (0, "/\n")


@pytest.mark.parametrize("question", [KUBELET, SCHEDULER, PLANNED])
def test_a_program_that_is_left_behind_is_ended_and_holds_nobody_up(proc: Proc, question: str) -> None:
    status, text = said(proc, f"{question} 'sleep 1234 & echo $!'")
    assert status == 0
    # It got its SIGKILL before the answer came; the kernel may still be ending it.
    wait_until("the end of the program that was left behind", lambda: is_over(int(text)), 60)


def test_one_that_leaves_its_group_holds_nobody_up_either(proc: Proc) -> None:
    status, text = said(proc, f"{PLANNED} 'setsid sleep 1235 & echo $!'")
    assert status == 0
    os.kill(int(text), signal.SIGKILL)  # it was still there, and the answer did not wait for it


@pytest.mark.parametrize("question", [KUBELET, SCHEDULER, PLANNED])
def test_a_binary_that_gives_no_answer_in_time_was_not_asked(proc: Proc, question: str) -> None:
    (line,) = asked(proc, f"{question} 'echo Kubernetes v1.36.3; exec sleep 1236'; version 100 124; answer kubelet 124", 1)
    assert line.startswith("said 124 ")


def test_an_output_without_end_is_cut(proc: Proc) -> None:
    status, text = said(proc, f"{KUBELET} 'while :; do echo 0123456789012345678901234567890123456789; done'")
    assert status >= ask._NO_ANSWER and 1 << 20 <= len(text) <= 4 << 20


@pytest.mark.parametrize(
    "question",
    [
        "run kubelet_plainly 100 10001 -c 'echo ran'",  # another process that got the number
        "run kubelet_plainly 200 20000 -c 'echo ran'",
        "run kubelet_as_planned 200 20000 -c 'echo ran'",
        "run kubelet_as_planned 99 9900 -c 'echo ran'",
        "run inside kube-scheduler 100 10000 kube-system_kube-scheduler-node -c 'echo ran'",
        "run inside kube-scheduler 200 20001 kube-system_kube-scheduler-node -c 'echo ran'",
        "run inside kube-scheduler 200 20000 kube-system_another-node -c 'echo ran'",
        "run inside kube-apiserver 200 20000 kube-system_kube-scheduler-node -c 'echo ran'",
        "run inside kube-scheduler 300 30000 kube-system_kube-scheduler-node -c 'echo ran'",
        "run kubelet_plainly 301 30100 -c 'echo ran'",
    ],
)
def test_what_is_not_proven_is_not_run(proc: Proc, question: str) -> None:
    proc.add(300, "kube-scheduler", cgroup=f"/kubepods/pod{DASHED}/x", program=SHELL)
    proc.add(301, "kubelet", cgroup="/system.slice/other.service", program=SHELL)
    assert said(proc, question) == (125, "")


@pytest.mark.parametrize(("content", "mode"), [(b"#!/bin/sh\necho ran\n", 0o755), (None, 0o777), (None, 0o775)])
def test_a_script_or_a_file_of_others_is_not_shown_a_candidate(proc: Proc, content: bytes | None, mode: int) -> None:
    binary = proc.root / "files/kubelet"
    binary.write_bytes(content or SHELL.read_bytes())
    binary.chmod(mode)
    (proc.root / "proc/100/exe").unlink()
    (proc.root / "proc/100/exe").symlink_to(binary)
    assert said(proc, f"{PLANNED} 'echo ran'") == (125, "")


def test_the_answers_are_read_back(proc: Proc) -> None:
    """Through the very questions that plans are made of."""
    seen = proc.look()
    assert seen.kubelet is not None
    scheduler = seen.named("kube-scheduler")[0]
    question = ask.ask_version("kube-scheduler", scheduler, "kube-system_kube-scheduler-node").replace(
        "--version;", "-c 'echo Kubernetes v1.36.3';"
    )
    assert ask.versions(proc.run(ask.script([question])).splitlines()) == {200: "v1.36.3"}
    refused = ask.ask_with_files("kube-scheduler", scheduler, "kube-system_kube-scheduler-node", ["--version"]).replace(
        "--version;", "-c 'echo Error: no; exit 1';"
    )
    listed = ask.list_kubelet(seen.kubelet).replace("--help", "-c 'echo Foo=true\\|false \\(ALPHA - default=false\\)'")
    lines = proc.run(ask.script([refused, listed])).splitlines()
    assert ask.verdicts(lines) == {"kube-scheduler": "no"}
    assert ask.listed(lines) == {"kubelet": "Foo=true|false (ALPHA - default=false)\n"}


def test_what_a_binary_says_of_a_secret_is_masked() -> None:
    text = base64.b64encode(b"Error: bad --token=hunter2hunter2 " + b"x" * 9000).decode()
    (told,) = ask.verdicts([f"answer kubelet 1 {text}="]).values()
    assert "hunter2" not in told and len(told) <= 2000


# ---- a unit that starts something else, and a flag that waits

REAL = "/usr/bin/kubelet"
WORDS = st.from_regex(r"--[a-z]{2,8}(=[a-z0-9]{1,5})?", fullmatch=True)
WRAPPERS = st.sampled_from(
    [
        '/bin/sh -c "exec {command}"', "/bin/bash -c '{command}'", "/bin/sh -c 'exec {program} $0 $@' {words}",
        "/usr/local/bin/kubelet-wrapper {words}", "/usr/bin/env {command}", "-/usr/bin/nice -n 5 {command}",
        "+/usr/bin/numactl --membind=0 {command}", "@/bin/sh kubelet -c '{command}'", "/opt/bin/kubelet {words}", "kubelet-wrapper {words}",
    ]
)  # fmt: skip


@given(wrapper=WRAPPERS, more=st.lists(WORDS, max_size=3), to_change=st.booleans())
def test_a_unit_through_a_wrapper_is_always_refused(wrapper: str, more: list[str], to_change: bool) -> None:
    words = " ".join(["--config=/var/lib/kubelet/config.yaml", *more])
    command = wrapper.format(command=f"{REAL} {words}", program=REAL, words=words)
    unit = f"[Service]\nExecStart={command}\n".encode()
    seen = parse(
        "n1", node.answer(style="plain", unit=unit, argv=(REAL, *words.split()), files={"/var/lib/kubelet/config.yaml": node.CONFIG})
    )
    with pytest.raises(Refusal, match=r"kubelet\.service:2: the unit starts .*may not reach the kubelet") as refused:
        kubelet.find(seen, to_change=to_change)
    assert REAL in str(refused.value) and "let ExecStart= start the kubelet itself" in str(refused.value)


@pytest.mark.parametrize(
    ("command", "exe", "program"),
    [
        (REAL, REAL, None),
        ("-@/usr/bin/kubelet some-name", REAL, None),
        ("/usr/local/bin/kubelet", "/opt/kubelet-1.36", ("/usr/local/bin/kubelet", "/opt/kubelet-1.36")),
        ("kubelet", REAL, (REAL, REAL)),
        # Replaced since it started: still what the unit starts.
        (REAL, f"{REAL} (deleted)", None),
    ],
)
def test_the_kubelet_itself_through_links_is_no_wrapper(command: str, exe: str, program: tuple[str, str] | None) -> None:
    extra = [f"program {node.b64(program[0])} {node.b64(program[1])}="] if program else []
    unit = f"[Service]\nExecStart={command} --v=2\n".encode()
    assert kubelet.find(parse("n1", node.answer(style="plain", unit=unit, exe=exe, extra=extra)))


SWITCHES = sorted(schema.switches())
VALUED = sorted(set(schema.flags(36)) - schema.switches())


@given(flag=st.one_of(st.sampled_from(VALUED).map("--{}".format), st.just("-v"), st.from_regex(r"--not-known-[a-z]{3}", fullmatch=True)))
def test_a_command_line_that_ends_in_a_waiting_flag_is_always_refused(flag: str) -> None:
    unit = f"[Service]\nExecStart={REAL} --v=2 {flag}\n".encode()
    with pytest.raises(Refusal, match="has no value and would take the next flag as its value"):
        kubelet.find(parse("n1", node.answer(style="plain", unit=unit, exe=REAL)))
    found = kubelet.find(parse("n1", node.answer(style="plain", exe="/usr/local/bin/kubelet")))
    with pytest.raises(Refusal, match="has no value and would take the next flag as its value"):
        ask.ask_kubelet(found, (REAL, "--v=2", flag), {})


@given(switch=st.sampled_from(SWITCHES), flag=st.sampled_from(VALUED))
def test_a_switch_and_a_flag_with_its_value_do_not_wait(switch: str, flag: str) -> None:
    for argv in ((REAL, f"--{switch}"), (REAL, f"--{flag}", "--v"), (REAL, f"--{flag}=x"), (REAL, "--", f"--{flag}"), (REAL,)):
        assert flags.waiting(argv, schema.switches()) is None, argv


def test_a_new_flag_is_not_put_behind_one_that_would_take_it() -> None:
    """The variable ends in a flag whose value stands behind the variable."""
    unit = f"[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--node-ip\nExecStart={REAL} $KUBELET_EXTRA_ARGS 10.0.0.1\n".encode()
    found = kubelet.find(parse("n1", node.answer(style="plain", unit=unit, exe=REAL)))
    changed = kubelet_plan.edits(found, {"SomeGate": True})
    with pytest.raises(Refusal, match="--feature-gates=SomeGate=true would follow --node-ip"):
        _ = kubelet_plan.KubeletEdit(found, changed).service


@pytest.mark.parametrize("gates", ["A=maybe", "A", "A=true,B=2"])
@pytest.mark.parametrize("where", ["unit", "process"])
def test_malformed_gates_on_a_command_line_are_a_refusal(gates: str, where: str) -> None:
    argv = (REAL, f"--feature-gates={gates}") if where == "process" else (REAL,)
    more = f" --feature-gates={gates}" if where == "unit" else ""
    unit = f"[Service]\nExecStart={REAL}{more}\n".encode()
    with pytest.raises(Refusal, match="feature gate"):
        kubelet.find(parse("n1", node.answer(style="plain", unit=unit, argv=argv, exe=REAL)))


def test_two_kubelets_of_the_nodes_own_are_refused() -> None:
    second = f"process kubelet 101 5001 {node.b64('kubelet')}= {node.b64('0::/system.slice/other.service')}= {node.b64(REAL)}="
    with pytest.raises(Refusal, match="2 kubelets run on the node itself: PID 100, PID 101"):
        kubelet.find(parse("n1", node.answer(extra=[second])))
