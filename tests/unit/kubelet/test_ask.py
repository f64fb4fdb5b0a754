"""Who is asked about a change: the file that the running kubelet was started from, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roles import kubelet
from roles.change.refusal import Refusal
from roles.feature_gates import plan as planning
from roles.feature_gates.model import Desired
from roles.formats import FormatError, flags
from roles.kubelet import Kubelet, ask, schema
from roles.observe import Process, parse
from tests.unit.observe import node
from tests.unit.observe.fake import STATIC, STATIC_POD, Fake


@pytest.fixture
def machine(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


def seen(**changes: Any) -> Kubelet:
    return kubelet.find(parse("n1", node.answer(**changes)))


def asked(machine: Fake, found: Kubelet | None = None) -> list[str]:
    found = found or seen()
    return machine.run(ask.script([ask.ask_kubelet(found, found.process.argv, {})], machine.proc))


def test_the_running_kubelets_own_file_is_asked(machine: Fake) -> None:
    machine.kubelet()
    lines = asked(machine)
    first, *_, last = machine.ran["kubelet"].splitlines()
    assert first.startswith("--bootstrap-kubeconfig=") and "--max-pods=-1 --config=/run/daytwo-ask." in first and last == "--help"
    assert ask.unasked(lines) == {} and "kubelet" in ask.verdicts(lines)


COMPLAINT = "error: invalid configuration: maxPods (--max-pods) -1 must not be a negative number, path: x"
REFUSES = "echo unrecognized feature gate: Gone"


@pytest.mark.parametrize(
    ("body", "after", "before"),
    [
        (f"echo '{COMPLAINT}'; exit 1", "", None),
        (f"case $* in *now-config*) echo '{COMPLAINT}';; *) {REFUSES};; esac; exit 1", "unrecognized feature gate: Gone", ""),
        (f"{REFUSES}; exit 1", "unrecognized feature gate: Gone", "unrecognized feature gate: Gone"),
    ],
)
def test_a_kubelet_that_refuses_is_shown_the_files_as_they_are(machine: Fake, body: str, after: str, before: str | None) -> None:
    program = machine.program("kubelet")
    program.write_text(f'#!/bin/sh\necho "$@" >>"{machine.folder}/traces/kubelet"\n{body}\n')
    machine.kubelet(exe=program)
    lines = asked(machine)
    assert ask.verdicts(lines) == {"kubelet": after} and ask.verdicts_now(lines).get("kubelet") == before
    asked_for = machine.ran["kubelet"].splitlines()
    assert len(asked_for) == (2 if before is None else 3) and all("--max-pods=-1" in line for line in asked_for[:-1])


def test_what_a_binary_complains_of_is_found_in_the_files() -> None:
    environment = b"KUBELET_EXTRA_ARGS='--feature-gates=Gone=true --container-runtime=remote'\n"
    config = node.CONFIG + b"featureGates:\n  GoneToo: true\nevictionHard:\n  memory.available: x\n"
    words = ("--feature-gates=Gone=true", "--container-runtime=remote")
    files = {"/etc/default/kubelet": environment, "/var/lib/kubelet/config.yaml": config}
    places = ask.places(seen(files=files, argv=(*node.KUBEADM_ARGV, *words)))
    assert ask.blamed(places, "unrecognized feature gate: Gone") == "/etc/default/kubelet:1"
    assert ask.blamed(places, "unknown flag: --container-runtime") == "/etc/default/kubelet:1"
    assert ask.blamed(places, "unrecognized feature gate: GoneToo") == "/var/lib/kubelet/config.yaml:5"
    assert ask.blamed(places, "invalid EvictionHard: memory.available: x") == "/var/lib/kubelet/config.yaml:7"
    assert ask.blamed(places, "out of memory") == ""


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"start": 5001}, "ended since it was looked at"),
        ({"uid": 65534}, "does not run as root"),
        ({"cgroup": "0::/system.slice/other.service"}, "not the main process of other.service"),
        ({"mounts": "mnt:[7]"}, "mount namespace of its own"),
    ],
)
def test_a_process_that_is_not_the_kubelet_is_not_asked(machine: Fake, changes: dict[str, Any], why: str) -> None:
    machine.kubelet(**changes)
    lines = asked(machine)
    assert machine.ran == {} and why in ask.unasked(lines)["kubelet"] and ask.verdicts(lines) == {}


@pytest.mark.parametrize("mode", [0o757, 0o775, 0o1757])
@pytest.mark.parametrize("what", ["bin/kubelet", "bin"])
def test_a_file_that_others_can_change_is_not_run(machine: Fake, what: str, mode: int) -> None:
    machine.kubelet()
    (machine.folder / what).chmod(mode)
    lines = asked(machine)
    if what == "bin" and mode == 0o1757:
        # In such a folder nobody else can replace what is root's.
        assert "kubelet" in machine.ran
        return
    assert machine.ran == {} and f"{machine.folder / what} can be changed by others than root" in ask.unasked(lines)["kubelet"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("what", ["bin/kubelet", "bin", "."])
def test_a_file_that_is_not_roots_is_not_run(machine: Fake, what: str) -> None:
    machine.kubelet()
    os.chown(machine.folder / what, 65534, 65534)
    assert "can be changed by others than root" in ask.unasked(asked(machine))["kubelet"] and machine.ran == {}


def test_of_a_kubelet_that_was_replaced_the_file_that_will_start_is_asked(machine: Fake) -> None:
    machine.kubelet()
    link = machine.folder / "proc/100/exe"
    old = os.readlink(link)
    link.unlink()
    link.symlink_to(f"{old} (deleted)")
    asked(machine)
    assert "--max-pods=-1" in machine.ran["kubelet"]


# ---- what the unit starts

DIRECT = node.PLAIN_UNIT
WRAPPERS = {
    "a shell": (b'/bin/sh -c "exec /usr/local/bin/kubelet --v=2"', ("/bin/sh", "/usr/bin/dash")),
    "env": (b"/usr/bin/env GODEBUG=x /usr/local/bin/kubelet", ("/usr/bin/env", "/usr/bin/env")),
    "a script": (b"/usr/local/bin/start-kubelet $KUBELET_EXTRA_ARGS", ("/usr/local/bin/start-kubelet", "/usr/local/bin/start-kubelet")),
    "a script of its name": (b"/opt/kubelet --v=2", ("/opt/kubelet", "/opt/kubelet")),
    "another name in the arguments": (b"@/usr/bin/nice /usr/local/bin/kubelet --v=2", ("/usr/bin/nice", "/usr/bin/nice")),
}


def started_by(command: bytes, starts: tuple[str, str] | None) -> Kubelet:
    text = b"[Service]\nEnvironmentFile=-/etc/default/kubelet\nExecStart=" + command + b"\n"
    return seen(style="plain", unit=text, starts=starts)


@pytest.mark.parametrize("kind", WRAPPERS)
def test_a_unit_that_goes_through_something_else_is_refused_before_asking(kind: str) -> None:
    found = started_by(*WRAPPERS[kind])
    for refused in (
        lambda: ask.ask_kubelet(found, found.process.argv, {}),
        lambda: planning.make("r1", found.seen, Desired(feature_gates={"A": True}, components=("kubelet",))),
    ):
        with pytest.raises(Refusal, match=r"kubelet.service:3: ExecStart= starts .*; let ExecStart= name /usr/local/bin/kubelet itself"):
            refused()


@pytest.mark.parametrize(
    ("command", "starts"),
    [
        (b"/usr/local/bin/kubelet --v=2", ("/usr/local/bin/kubelet", "/usr/local/bin/kubelet")),
        (b"-/usr/local//bin/kubelet --v=2", ("/usr/local/bin/kubelet", "/usr/local/bin/kubelet")),
        (b"/opt/kubelet --v=2", ("/opt/kubelet", "/usr/local/bin/kubelet")),
        (b"kubelet --v=2", ("/usr/local/bin/kubelet", "/usr/local/bin/kubelet")),
        (b"@/usr/local/bin/kubelet sh --v=2", ("/usr/local/bin/kubelet", "/usr/local/bin/kubelet")),
    ],
)
def test_a_unit_that_starts_the_kubelet_itself_is_not(command: bytes, starts: tuple[str, str]) -> None:
    started_by(command, starts).started_directly()


def test_what_was_not_looked_at_is_not_taken_for_the_kubelet() -> None:
    with pytest.raises(Refusal, match="ExecStart= starts /opt/kubelet"):
        started_by(b"/opt/kubelet", None).started_directly()


# ---- flags that wait

SWITCHES = sorted(schema.switches())
WAITING = ["--node-ip", "--v", "-v", "--hostname-override", "--feature-gates", "--not-known", "--node_ip"]


@given(st.lists(st.sampled_from(["--a=1", "--node-ip=x", "--rotate-certificates", "x"])), st.sampled_from(WAITING))
def test_words_that_end_in_a_waiting_flag_are_refused(words: list[str], last: str) -> None:
    argv = ["kubelet", *words, last]
    with pytest.raises(FormatError, match="may take that for its value"):
        flags.check_taken(argv, SWITCHES)
    flags.check_taken([*argv, "value"], SWITCHES)
    flags.check_taken([*argv[:-1], f"{last}=value"], SWITCHES)
    flags.check_taken(argv, SWITCHES, argv)  # it runs so: nothing waits


@given(st.sampled_from(SWITCHES))
def test_words_that_end_in_a_switch_are_not(name: str) -> None:
    flags.check_taken(["kubelet", f"--{name}"], SWITCHES)
    flags.check_taken(["kubelet", f"--{name.replace('-', '_')}"], SWITCHES)


def test_a_kubelet_is_not_asked_behind_a_waiting_flag() -> None:
    found = seen()
    with pytest.raises(Refusal, match=r"cannot be asked.*--node-ip"):
        ask.ask_kubelet(found, (*found.process.argv, "--node-ip"), {})
    with pytest.raises(Refusal, match="bare `--`"):
        ask.ask_kubelet(found, (*found.process.argv, "--", "x"), {})


@pytest.mark.parametrize(
    ("extra", "refused"),
    [("--node-ip", True), ("--rotate-certificates", False), ("--node-ip=1.2.3.4", False), ("--v 2", False), ("-v", True)],
)
def test_no_flag_is_written_behind_a_waiting_one(extra: str, refused: bool) -> None:
    unit = b"[Service]\nEnvironmentFile=-/etc/default/kubelet\nExecStart=/usr/local/bin/kubelet $KUBELET_EXTRA_ARGS $MORE\n"
    files = {"/etc/default/kubelet": f"KUBELET_EXTRA_ARGS={extra}\nMORE=10.0.0.1\n".encode()}
    changes = {"style": "plain", "unit": unit, "files": files, "starts": ("/usr/local/bin/kubelet",) * 2}
    wanted = Desired(feature_gates={"A": True}, components=("kubelet",))
    if refused:
        with pytest.raises(Refusal, match="may take that for its value"):
            planning.make("r1", parse("n1", node.answer(**changes)), wanted)
    else:
        running = ("/usr/local/bin/kubelet", *extra.split(), "10.0.0.1")
        assert planning.make("r1", parse("n1", node.answer(argv=running, **changes)), wanted).planned[0].change is not None


# What may stand before the kubelet's own words, and lead to another program than it.
_WRAPPERS = st.sampled_from(
    [
        ("/bin/sh", "/usr/bin/dash", '-c "exec {kubelet} {words}"'),
        ("/bin/bash", "/usr/bin/bash", "-c 'exec {kubelet} {words} \\\\\"$@\\\\\"' kubelet"),
        ("/usr/bin/env", "/usr/bin/env", "A=1 {kubelet} {words}"),
        ("/usr/bin/nice", "/usr/bin/nice", "-n -5 {kubelet} {words}"),
        ("/usr/bin/systemd-cat", "/usr/bin/systemd-cat", "{kubelet} {words}"),
        ("/opt/kubelet-wrapper", "/opt/kubelet-wrapper", "{words}"),
        ("/usr/bin/kubelet", "/usr/bin/kubelet.sh", "{words}"),
    ]
)
_WORDS = st.lists(
    st.sampled_from(["--v=2", "--node-ip 10.0.0.1", "--rotate-certificates", "$KUBELET_EXTRA_ARGS", "--feature-gates=A=false"]), max_size=4
)


@settings(max_examples=60, deadline=None)
@given(_WRAPPERS, st.sampled_from(["", "-", "@", ":", "+"]), _WORDS)
def test_no_unit_that_goes_through_something_else_is_edited_or_asked(wrapper: tuple[str, str, str], prefix: str, words: list[str]) -> None:
    """What daytwo appends, a flag or the deliberate bad value, would go to what the unit starts."""
    path, really, shape = wrapper
    command = shape.format(kubelet="/usr/local/bin/kubelet", words=" ".join(words))
    name = " kubelet" if prefix == "@" else ""
    unit = f"[Service]\nEnvironmentFile=-/etc/default/kubelet\nExecStart={prefix}{path}{name} {command}\n".encode()
    running = ("/usr/local/bin/kubelet", *" ".join(words).replace("$KUBELET_EXTRA_ARGS", "").split())
    seen = parse("n1", node.answer(style="plain", unit=unit, argv=running, starts=(path, really)))
    with pytest.raises(Refusal, match=r"ExecStart= starts .* would go to the first, not to the kubelet"):
        planning.make("r1", seen, Desired(feature_gates={"A": True}, components=("kubelet",)))
    found = kubelet.find(seen)
    with pytest.raises(Refusal, match="ExecStart= starts"):
        ask.ask_kubelet(found, running, {})


_SWITCHES = sorted(schema.switches())
_LAST = st.one_of(
    st.sampled_from(["-v", "--node-ip", "--node_ip", "--config", "--feature-gates", "--no-such-flag"]),
    st.from_regex(r"--[a-z][a-z0-9-]{0,12}", fullmatch=True).filter(lambda flag: flag.removeprefix("--") not in _SWITCHES),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(["--v=2", "--node-ip=1.2.3.4", "x", "--rotate-certificates"]), max_size=3), _LAST)
def test_nothing_is_ever_written_or_asked_behind_a_flag_that_waits(words: list[str], last: str) -> None:
    """It would take the new word for its value: the gate would not be set, and a kubelet that is only asked would run."""
    running = ("/usr/local/bin/kubelet", *words, "--v=3")
    unit = b"[Service]\nEnvironmentFile=-/etc/default/kubelet\nExecStart=/usr/local/bin/kubelet $KUBELET_EXTRA_ARGS\n"
    files = {"/etc/default/kubelet": f"KUBELET_EXTRA_ARGS='{' '.join([*words, last])}'\n".encode()}
    seen = parse("n1", node.answer(style="plain", unit=unit, files=files, argv=running))
    with pytest.raises(Refusal, match=r"may take that for its value|is the last word and has no value"):
        planning.make("r1", seen, Desired(feature_gates={"A": True}, components=("kubelet",)))
    found = kubelet.find(parse("n1", node.answer(style="plain", unit=unit, argv=running)))
    with pytest.raises(Refusal, match="cannot be asked"):
        ask.ask_kubelet(found, (*running, last), {})


@given(st.sampled_from(_SWITCHES), st.booleans())
def test_a_switch_waits_for_nothing(switch: str, underscores: bool) -> None:
    found = kubelet.find(parse("n1", node.answer(style="plain")))
    flag = f"--{switch.replace('-', '_') if underscores else switch}"
    assert "--max-pods=-1" in ask.ask_kubelet(found, (*found.process.argv, flag), {})


# ---- a component in its container

CONTAINER = r"""
mount -t tmpfs none /mnt
cat >/mnt/kube-scheduler <<'END'
#!/bin/sh
echo "$@"
echo "uid $(id -u) $(id -G)"
grep -E '^(NoNewPrivs|CapEff|CapPrm|CapAmb):' /proc/self/status
cat /etc/shadow 2>/dev/null && echo read it
touch /mnt/written 2>/dev/null && echo wrote
exit 1
END
chmod 755 /mnt /mnt/kube-scheduler
echo up
read -r line
"""
CAN_CONTAIN = (
    os.getuid() == 0
    and shutil.which("setpriv")
    and not subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode
)


@pytest.fixture
def container() -> Iterator[int]:
    """A process with its own mounts, in which alone /mnt/kube-scheduler is; its PID."""
    with subprocess.Popen(
        ["unshare", "--mount", "--ipc", "--uts", "sh", "-c", CONTAINER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        yield process.pid
        process.communicate(b"\n")


@pytest.mark.skipif(not CAN_CONTAIN, reason="needs root and a mount namespace")
def test_a_component_is_asked_in_its_container_without_any_rights(machine: Fake, container: int) -> None:
    machine.kubelet()
    machine.component(container, exe=Path("/mnt/kube-scheduler"))
    scheduler = Process("kube-scheduler", container, 5000, ("kube-scheduler",), STATIC_POD, "/mnt/kube-scheduler")
    lines = machine.run(ask.script([ask.ask_component("kube-scheduler", scheduler, ["--feature-gates=A=true"])], machine.proc))
    (answer,) = [line for line in lines if line.startswith("answer ")]
    said = ask._decoded(answer.split()[3]).splitlines()
    assert said[:2] == ["--feature-gates=A=true --version", "uid 65534 65534"]
    assert {word for line in said[2:] for word in line.split()} == {"CapPrm:", "CapEff:", "CapAmb:", "0000000000000000", "NoNewPrivs:", "1"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"start": 5001}, "ended since it was looked at"),
        ({"cgroup": "0::/user.slice/x.scope"}, "in no static pod"),
        ({"cgroup": STATIC_POD.replace(STATIC, "e" * 32)}, "in another pod"),
    ],
)
def test_a_component_that_is_another_by_now_is_not_asked(machine: Fake, changes: dict[str, Any], why: str) -> None:
    machine.kubelet()
    machine.component(**changes)
    scheduler = Process("kube-scheduler", 200, 5000, ("kube-scheduler",), STATIC_POD, str(machine.folder / "bin/kube-scheduler"))
    lines = machine.run(ask.script([ask.ask_component("kube-scheduler", scheduler, [])], machine.proc))
    assert why in ask.unasked(lines)["kube-scheduler"] and machine.ran == {}


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed (make lint installs it)")
def test_shellcheck_has_nothing_to_say() -> None:
    found = seen()
    scheduler = Process("kube-scheduler", 200, 5000, ("kube-scheduler",), STATIC_POD, "/usr/local/bin/kube-scheduler")
    questions = [ask.ask_kubelet(found, found.process.argv, {}), ask.ask_component("kube-scheduler", scheduler, ["--feature-gates=A=true"])]
    told = subprocess.run(
        ["shellcheck", "--shell=sh", "--severity=info", "-"], input=ask.script(questions), text=True, capture_output=True, check=False
    )
    assert told.returncode == 0, told.stdout
