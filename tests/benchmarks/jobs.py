"""What is measured: each job as a command line of daytwo, and as a play of Ansible."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.measure import LostError, Usage, measured
from tests.benchmarks.world import HERE, KEPT, ROOT, BenchError, Host, World, say

ANSIBLE = "ansible-core==2.19.14"
#: Set on all nodes from the beginning, and read by kubelets only.
SET_GATE = "ContainerCheckpoint"
#: Off by default, and read by kubelets only.
OTHER_GATE = "ReduceDefaultCrashLoopBackOffDecay"
#: Kubelets that change at the same time, after the canary.
AT_ONCE = 10
LIMIT_SECONDS = 3600


@dataclass(frozen=True)
class Job:
    """One thing that an operator does. `daytwo` is what follows pyinfra's inventory, `play` a file in ansible/ with its arguments; empty:
    there is no such play. `back` is the job that leads back to where this one began, with as much work: the runs take turns. With
    `replay` nodes may answer as recorded: the job only reads, and waits for nothing."""

    name: str
    daytwo: tuple[str, ...]
    play: tuple[str, ...] = ()
    back: str = ""
    replay: bool = False


def _gate(value: str) -> tuple[str, ...]:
    return ("deploys/feature_gates.py", "--data", f"feature_gates={OTHER_GATE}={value}", "--data", f"max_unavailable={AT_ONCE}", "-y")


JOBS = {
    job.name: job
    for job in (
        Job("status", ("deploys/status.py", "-y"), ("status.yml",), replay=True),
        Job(
            "plan",
            ("deploys/feature_gates.py", "--data", f"feature_gates={SET_GATE}=true", "-y"),
            ("plan.yml", "--check", "--diff", "-e", f'{{"gate": "{SET_GATE}", "gate_value": true}}'),
            replay=True,
        ),
        Job("change", _gate("true"), ("change.yml", "-e", f'{{"gate": "{OTHER_GATE}", "gate_value": true, "at_once": {AT_ONCE}}}'), "back"),
        Job("back", _gate("absent"), ("change.yml", "-e", f'{{"gate": "{OTHER_GATE}", "gate_value": false, "at_once": {AT_ONCE}}}')),
        Job("audit", ("deploys/audit.py",), replay=True),
        Job("checks", ("deploys/checks.py", "-y")),
    )
}


def command(world: World, tool: str, job: Job) -> tuple[list[str], Mapping[str, str]]:
    """The command line of a job, and the environment it runs in. Raises BenchError where the tool has no such job."""
    environment = {**os.environ, "PYINFRA_PROGRESS": "off", "XDG_STATE_HOME": str(world.state / "records"), "LC_ALL": "C.UTF-8"}
    if tool == "daytwo":
        return [str(ROOT / ".venv/bin/pyinfra"), str(world.inventory), *job.daytwo], environment
    if not job.play:
        raise BenchError(f"there is no play for {job.name}")
    folder = world.state / "ansible"
    environment["ANSIBLE_CONFIG"] = str(folder / "ansible.cfg")
    environment["ANSIBLE_HOME"] = str(folder / "home")
    return [str(_ansible()), "-i", str(folder / "hosts.ini"), str(HERE / "ansible" / job.play[0]), *job.play[1:]], environment


def run(world: World, tool: str, job: Job) -> Usage:
    """Run a job once. Raises BenchError, with the end of the output, where it did not do all that it was to do."""
    if tool == "ansible":
        _ansible_files(world)
    words, environment = command(world, tool, job)
    output = world.state / f"{tool}-{job.name}.log"
    try:
        usage = measured(words, ROOT, environment, output, LIMIT_SECONDS)
    except LostError as error:
        raise BenchError(f"{tool} {job.name}: {error}") from error
    text = output.read_text(errors="replace")
    if problem := wrong(tool, job, text, usage.status, [host.name for host in world.hosts()]):
        lines = [
            line for line in text.splitlines() if re.search(r"fatal|error|refused|HALTED|unreachable|failed=[1-9]", line, re.IGNORECASE)
        ]
        raise BenchError(f"{tool} {job.name}: {problem}\n" + "\n".join([*lines[:10], "...", *text.splitlines()[-15:]]))
    return usage


def own_seconds(world: World, begun: float) -> float:
    """The median of the changes' own share (docs/how-it-works.md, `own_seconds`) in the record of the run that began after `begun` (seconds
    since 1970); 0 if it changed nothing."""
    found = []
    for record in (world.state / "records").glob("daytwo/runs/*.jsonl"):
        if record.stat().st_mtime >= begun:
            found += re.findall(r'"own_seconds": ?([\d.]+)', record.read_text())
    return statistics.median(map(float, found)) if found else 0.0


def wrong(tool: str, job: Job, text: str, status: int, hosts: list[str]) -> str:
    """Why the output of a job is not that of a success; "" where it is."""
    if status:
        return f"exit status {status}"
    if tool == "ansible":
        recap = dict(re.findall(r"^(\S+) +: ok=\d+.*?(unreachable=\d+ +failed=\d+)", text, re.MULTILINE))
        bad = [host for host in hosts if not re.fullmatch(r"unreachable=0 +failed=0", recap.get(host, ""))]
        return f"not well: {', '.join(bad)}" if bad else ""
    row = {
        "status": "kubelet .* active, 0 restarts",
        "plan": f"kubelet +{SET_GATE} .* no change ",
        "change": f"kubelet +{OTHER_GATE} .* confirmed ",
        "back": f"kubelet +{OTHER_GATE} .* confirmed ",
        "audit": "",
        "checks": "node-ready +pass ",
    }[job.name]
    if not row:
        return "" if re.search(rf"^Audit: nothing found on {len(hosts)} nodes", text, re.MULTILINE) else "there are findings"
    # Hosts that are alike share a row.
    shown = [int(number or 1) for number in re.findall(rf"^(?:(\d+) hosts: .*?|\S+)  +(?:\S+ +)??{row}", text, re.MULTILINE)]
    return "" if sum(shown) == len(hosts) else f"{len(hosts)} hosts were to be shown as {row!r}, and {sum(shown)} are"


def _ansible() -> Path:
    """ansible-playbook in the benchmark's own environment; installed when it is missing."""
    venv = KEPT / "ansible"
    mark = venv / f".{ANSIBLE}"
    if not mark.exists():
        say(f"installing {ANSIBLE}")
        for words in (
            [sys.executable, "-m", "venv", "--clear", str(venv)],
            [str(venv / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", ANSIBLE],
        ):
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                raise BenchError(f"{ANSIBLE} cannot be installed: {done.stderr.strip()[-500:]}")
        mark.touch()
    return venv / "bin/ansible-playbook"


def _ansible_files(world: World) -> None:
    hosts = world.hosts()
    folder = world.state / "ansible"
    folder.mkdir(exist_ok=True)
    # As its documents advise for many hosts (pipelining, forks, no facts, ControlPersist).
    (folder / "ansible.cfg").write_text(
        f"""[defaults]
forks = {min(100, len(hosts))}
gathering = explicit
host_key_checking = true
interpreter_python = /usr/bin/python3
timeout = 20
nocows = true

[ssh_connection]
pipelining = true
ssh_args = -F {world.ssh_config} -o ControlMaster=auto -o ControlPersist=60s
control_path_dir = {folder}/cp
# One command for a file, and not a whole session of sftp.
transfer_method = piped
"""
    )

    def lines(role: str) -> str:
        return "".join(f"{host.name} ansible_host={host.listen}\n" for host in _of(hosts, role))

    (folder / "hosts.ini").write_text(f"[control_plane]\n{lines('control-plane')}\n[workers]\n{lines('worker')}\n")


def _of(hosts: list[Host], role: str) -> list[Host]:
    return [host for host in hosts if host.role == role]
