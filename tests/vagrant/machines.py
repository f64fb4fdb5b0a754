"""The machines cp1 and w1: brought up by Vagrant, asked and rebooted by ssh, taken down without a trace."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from tests.lab import binaries
from tests.lab.tools import LabError, long_step, remove_tree, replace_text, run, say, wait_until
from tests.vagrant import box, host

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DOT = HERE / ".vagrant"
TOLD = DOT / "daytwo.json"
SSH_CONFIG = DOT / "ssh_config"
NAMES = ("cp1", "w1")
ADMIN = "/etc/kubernetes/admin.conf"
BOX_SERVER = "https://vagrantcloud.com/api/v2/vagrant/debian/bookworm64"
REACH_SECONDS = 5
# How many times longer than on an ordinary machine everything may take where the processor is emulated.
EMULATED = 8.0


def patience(driver: str) -> float:
    """DAYTWO_VAGRANT_PATIENCE, or what is usual for the driver."""
    given = os.environ.get("DAYTWO_VAGRANT_PATIENCE", "")
    if not given:
        return EMULATED if driver == "qemu" else 1.0
    if not re.fullmatch(r"\d+(\.\d+)?", given) or not 1 <= float(given) <= 100:
        raise LabError(f"DAYTWO_VAGRANT_PATIENCE={given!r} is not a number from 1 to 100")
    return float(given)


def environment() -> dict[str, str]:
    """What every vagrant command gets, whatever folder it is called from."""
    return {**os.environ, "VAGRANT_CWD": str(HERE), "VAGRANT_DEFAULT_PROVIDER": "libvirt", "VAGRANT_CHECKPOINT_DISABLE": "1"}


def told() -> dict[str, object]:
    """What the last `up` found out about this machine; empty where there was none."""
    try:
        found: dict[str, object] = json.loads(TOLD.read_text())
    except FileNotFoundError:
        return {}
    return found


def waits(seconds: float) -> float:
    """A limit for these machines, from that for ordinary ones."""
    return seconds * float(str(told().get("patience", 1)))


def box_server() -> bool:
    """Whether public boxes can be fetched; decided within seconds. DAYTWO_VAGRANT_BOX=local, or a public box's name, decides it."""
    if wanted := os.environ.get("DAYTWO_VAGRANT_BOX", ""):
        return wanted != "local"
    try:
        with urllib.request.urlopen(BOX_SERVER, timeout=REACH_SECONDS) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def up() -> None:
    """The machines run and are Ready nodes of one cluster; does only what is missing."""
    host.prepare()
    version = binaries.version()
    found: dict[str, object] = {"version": version}
    if told():
        found = told()
        if found["version"] != version:
            raise LabError(f"machines with Kubernetes {found['version']} are there already; `make vagrant-down` first for {version}")
    elif box_server():
        say("the box server can be reached: public boxes, Kubernetes from its packages")
        found["patience"] = patience("kvm")
    else:
        say("no box server can be reached from here: the box is made on the spot")
        made = box.make(version)
        kernel, initrd = box.kernel(made)
        driver = host.driver(kernel)
        found |= {"box": made, "driver": driver, "kernel": str(kernel), "initrd": str(initrd), "pool": host.POOL}
        found |= {"key": str(box.private_key()), "patience": patience(driver), "consoles": str(consoles())}
    DOT.mkdir(exist_ok=True)
    replace_text(TOLD, json.dumps(found, indent=1) + "\n")
    (DOT / "known_hosts").unlink(missing_ok=True)
    with long_step("vagrant up"):
        # Provisioning that was cut short is taken up again; a machine that is a node is left alone.
        _vagrant("up", "--provision", "--provider", "libvirt")
    _write_ssh_config()
    with long_step("waiting for the nodes to be Ready"):
        wait_until("both nodes to be Ready", lambda: not not_ready(), waits(300))


def consoles() -> Path:
    folder = box.STATE / "consoles"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _vagrant(*words: str) -> None:
    """A vagrant command whose output is seen as it comes, but for its thousands of per cents."""
    with subprocess.Popen(
        ["vagrant", *words], env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if text := told_line(line):
                print(text, flush=True)
    if process.returncode != 0:
        raise LabError(f"`vagrant {' '.join(words)}` failed with {process.returncode}; the machines' consoles are in {consoles()}")


def told_line(line: str) -> str:
    """A line of Vagrant's without what it wrote over itself: progress, and the codes that erase it."""
    return re.sub(r"\x1b\[K|Progress: *\d+%", "", line.replace("\r", "")).rstrip()


def _write_ssh_config() -> None:
    """Vagrant tells it anew each time, in seconds; here it is for ssh."""
    text = run("vagrant", "ssh-config", env=environment()).stdout
    known = DOT / "known_hosts"
    # A machine that was destroyed and made anew is another host at the same address.
    text = re.sub(r"UserKnownHostsFile .*", f"UserKnownHostsFile {known}", text)
    text = re.sub(r"StrictHostKeyChecking .*", "StrictHostKeyChecking accept-new", text)
    replace_text(SSH_CONFIG, text)


def not_ready() -> list[str]:
    """The nodes that the API does not tell to be Ready."""
    states = {}
    answer = ssh("cp1", f"kubectl --kubeconfig={ADMIN} get nodes -o json", check=False).stdout
    for item in json.loads(answer or '{"items": []}')["items"]:
        conditions = {entry["type"]: entry["status"] for entry in item["status"].get("conditions", [])}
        states[item["metadata"]["name"]] = conditions.get("Ready") == "True"
    return [name for name in NAMES if not states.get(name)]


def ssh(name: str, command: str, *, check: bool = True, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """A shell command as root on a machine."""
    words = ("ssh", "-F", SSH_CONFIG, "-o", "LogLevel=ERROR", "-o", f"ConnectTimeout={waits(10):.0f}", name)
    return run(*words, f"sudo sh -c {shlex.quote(command)}", input="", check=check, timeout=waits(seconds))


def kubectl(*words: str, check: bool = True) -> str:
    return ssh("cp1", shlex.join(["kubectl", f"--kubeconfig={ADMIN}", *words]), check=check).stdout


def boot_id(name: str) -> str:
    """The id of the boot a machine runs in; "" while it does not answer."""
    try:
        return ssh(name, "cat /proc/sys/kernel/random/boot_id", check=False).stdout.strip()
    except LabError:
        return ""


def pull_plug(name: str) -> None:
    """An immediate restart: nothing is synced, nobody is asked (sysrq b, Documentation/admin-guide/sysrq.rst)."""
    ssh(name, "echo 1 >/proc/sys/kernel/sysrq; (sleep 1; echo b >/proc/sysrq-trigger) >/dev/null 2>&1 </dev/null &", check=False)


def down() -> None:
    """The machines, their disks, networks and what was started for them are gone; boxes and keys stay for the next time."""
    if not DOT.exists() and not box.STATE.exists():
        return
    host.prepare()
    with long_step("vagrant destroy"):
        _vagrant("destroy", "--force")
    host.remove_pool()
    # Vagrant's own network may serve machines of others, unless libvirtd itself was only there for ours.
    host.remove_networks("daytwo", *(["vagrant-libvirt"] if host.own_libvirtd() else []))
    host.stop_libvirtd()
    remove_tree(box.STATE / "pool", box.STATE / "consoles")
    remove_tree(DOT)


def status() -> None:
    if not shutil.which("vagrant"):
        raise LabError("vagrant is not installed here, so there are no machines; `make vagrant-up` installs it and creates them")
    subprocess.run(["vagrant", "status"], env=environment(), check=False)
