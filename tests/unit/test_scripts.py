"""What shellcheck has to say of the scripts that run on nodes, and what they leave behind."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from roles.engine import kubelet, starting
from roles.engine.kubelet import ask, runtime
from roles.engine.node.look import rendered
from roles.engine.proof.node_signs import Wanted
from roles.engine.runs.lock import number_script
from roles.engine.scripts import filled
from roles.engine.starting import KEYS, TUNABLES, Needs, Stops
from roles.engine.starting.model import Holds, KeyNeed, PathNeed, PortNeed
from roles.engine.transaction.change_script import Holder, boot_files, keep_script, render, stage_script, uninstall_script
from roles.eviction import usage
from roles.history.facts import question
from roles.pod_resize import cgroup
from roles.reboot import ending, facts
from roles.right_size import kernel
from tests.unit.node.node import answer, parse
from tests.unit.transaction.samples import KUBELET, RUNTIME, RUNTIME_TOO, STATIC_POD

TEMPLATES = Path(__file__).parents[2] / "templates"


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_a_folder_goes_where_nobody_hears_the_script_any_more(tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = (
        f"d=$(mktemp -d {tmp_path}/ask.XXXXXX)\n{filled('removed_at_end.sh.j2')}IFS= read -r _\nprintf 'daytwo 1\\n'\nprintf 'more\\n'\n"
    )
    process = subprocess.Popen([shell, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None and process.stdin is not None
    process.stdout.close()
    process.stdin.write(b"go\n")
    process.stdin.close()
    process.wait(timeout=60)
    assert list(tmp_path.iterdir()) == []


def test_each_script_with_a_folder_of_its_own_removes_it_so() -> None:
    having = {path.name: path.read_text() for path in TEMPLATES.glob("*.j2") if "mktemp -d" in path.read_text()}
    assert having and [name for name, text in having.items() if '{% include "removed_at_end.sh.j2" %}' not in text] == []


def _scripts() -> dict[str, str]:
    """Every script that runs on a node, filled in."""
    found = kubelet.find(parse("n1", answer()))
    process = found.process
    asked = [
        ask.ask_kubelet(found, process.argv, {}), ask.list_kubelet(process), ask.ask_version("kubelet", process, ""),
        ask.ask_with_files("kube-scheduler", process, "a_b", ["--feature-gates=A=true", "--version"]),
    ]  # fmt: skip
    paths = tuple(PathNeed("kubelet", "field", f"/{one.name}", one, Stops.start) for one in Holds)
    paths += (PathNeed("kubelet", "resolvConf", "/r", Holds.file, Stops.start),)
    needs = Needs(
        "n1", paths, (PortNeed("kubelet", "port", 10250, "0.0.0.0"),), TUNABLES, "/run/c.sock", unit="kubelet.service",
        addresses=("10.0.0.1",), cgroups={"a": "b"}, checkpoints={"/s": "none"}, provider_folder="/p", provider_config="/c",
        keys=(KeyNeed(KEYS[0], "/k.crt", "/k.key"),),
    )  # fmt: skip
    ended = ending.plan_ending("kubelet.service", {"etcd": "kube-system_etcd-node", "kube-apiserver": "kube-system_a"}, [])
    assert ended is not None
    holder, signs = Holder("r1", "somebody@somewhere", "pyinfra inv deploy"), frozenset({"locks", "process", "ports", "cgroups"})
    return {
        "addresses": filled("addresses.sh.j2"),
        "ask": ask.script(asked),
        "boot": facts.reboot_script("b00t", "r1"),
        "boot, with an end": facts.reboot_script("b00t", "r1", ended),
        "boot facts": facts.facts_script("kube let's.service"),
        "boot state": facts.state_script(),
        "certificates": filled(
            "certificates.sh.j2", paths=["/a b"], folders=["/c"], kubeconfigs=["/d"], keys=True, most_bytes=9, most_files=9
        ),
        "checks": filled("checks.sh.j2", unit="kubelet.service", seconds=1, endpoints=[("kubelet", "http://127.0.0.1:1/healthz", "", "")]),
        "container use": kernel.script(),
        "ending": ended.script(),
        "eviction usage": usage.script(),
        "history": question(["r1"]),
        "keep": keep_script("r1-cluster-x", holder, "staged", [{"event": "plan"}]),
        "keep, more": keep_script("r1-cluster-x", holder, "staged", [{"event": "plan"}], append=True),
        "lock": filled("lock.sh.j2", home="/h", run="r1", generation="", take_over="r0", life=9, holder=holder.lines),
        "observe": rendered(["/a b"], ["/c'd"]),
        "observe, at a glance": rendered(glance=True),
        "pod cgroups": cgroup.script(["a" * 64, "b" * 64]),
        "recover": boot_files("kubelet.service")["recover.sh"].decode(),
        "run number": number_script(),
        "runtime": runtime.question("/run/c.sock"),
        "shadow": filled(
            "shadow.sh.j2",
            folder="/run/x",
            api=process,
            api_pod="a",
            scheduler=process,
            scheduler_pod="b",
            etcd_pod="c",
            configuration="/etc/s.yaml",
            ports="1 2",
            life=60,
        ),
        "signs": Wanted(signs, "kube-apiserver", {"/a": "/b"}, ("/c",), ("https://127.0.0.1",)).script("7"),
        "signs, with a journal": Wanted(signs, "journal").script("7"),
        "stage": stage_script(KUBELET, holder, {}),
        "starting": starting.question(needs).split("\n", 3)[3].rsplit("daytwo-start", 1)[0],
        "uninstall": uninstall_script(),
        "the fault that tests plant": (TEMPLATES.parent / "tests/integration/plant_fault.sh").read_text(),
        "change of a kubelet": render(KUBELET),
        "change of a static pod": render(STATIC_POD),
        "change of a runtime": render(RUNTIME),
        "change of a runtime, with checkpoints": render(RUNTIME_TOO),
    }


SCRIPTS = _scripts()


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed (make lint installs it)")
@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_has_nothing_to_say(name: str) -> None:
    done = subprocess.run(["shellcheck", "--shell=sh", "-"], input=SCRIPTS[name], text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout


def test_each_template_is_in_one_of_these_scripts() -> None:
    def mark(path: Path) -> str:
        return max((line.strip() for line in path.read_text().splitlines() if not re.search(r"[{}]|^\s*#", line)), key=len)

    missing = [path.name for path in TEMPLATES.glob("*.sh.j2") if not any(mark(path) in text for text in SCRIPTS.values())]
    assert missing == []
