"""N simulated hosts on this machine: what they are made of, up and down, and how they are reached."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import urlencode

from tests.lab import rootfs
from tests.lab.tools import CACHE

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STATE = ROOT / ".bench"
KEPT = CACHE / "benchmarks"
VERSION = "v1.36.3"
SUITE = "bookworm"
# With Ansible's modules in mind, which need the whole of Python.
PACKAGES = ("openssh-server", "python3", "curl", "e2fsprogs", "util-linux", "mount", "procps", "sudo")
STAND_INS = ("systemctl", "systemd-run", "journalctl")
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
# Nodes' addresses exist in the hosts' own network namespaces only; the controller reaches sshd at addresses of its own loopback.
NODES = "10.213"
LOOPBACK = "127.213"
UP_SECONDS = 900


class BenchError(Exception):
    """The benchmark cannot go on; says why."""


@dataclass(frozen=True)
class Host:
    """One simulated host. `listen` is where the controller reaches its sshd, port 22."""

    name: str
    role: str
    address: str
    listen: str


def say(text: str) -> None:
    """A progress line on standard error."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def shape(count: int) -> list[Host]:
    """`count` hosts: one control-plane node, three of 10 hosts and more; the others are workers."""
    planes = 1 if count < 10 else 3
    made = []
    for number in range(count):
        plane = number < planes
        name = f"cp{number + 1}" if plane else f"w{number + 1 - planes}"
        low = f"{number // 200 + 1}.{number % 200 + 11}"
        made.append(Host(name, "control-plane" if plane else "worker", f"{NODES}.{low}", f"{LOOPBACK}.{low}"))
    return made


class World:
    """The simulated hosts of this checkout."""

    def __init__(self, state: Path = STATE) -> None:
        self.state = state
        self.inventory = state / "inventory.py"
        self.ssh_config = state / "ssh_config"

    def hosts(self) -> list[Host]:
        """Those that are up; none where the world is down."""
        if self.pid() is None:
            return []
        return [Host(**one) for one in json.loads((self.state / "hosts.json").read_text())]

    def pid(self) -> int | None:
        """The world's process, if it still runs."""
        try:
            pid = int((self.state / "world.pid").read_text())
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        return pid if str(self.state / "config.json").encode() in words else None

    def up(self, count: int, pods: int = 5) -> float:
        """Make `count` hosts, instead of those that are there. Returns the seconds it took. Raises BenchError."""
        self.down()
        self.state.mkdir(exist_ok=True)
        base = _base()
        begun = time.monotonic()
        made = shape(count)
        program, init = self._compile()
        self._layer(init)
        self._access(made)
        config = {
            "state": str(self.state),
            "layers": [str(self.state / "layer"), str(base)],
            "templates": str(HERE / "node" / "control-plane"),
            "answers": str(HERE / "answers"),
            "init": str(init),
            "pods": pods,
            "hosts": [vars(host) for host in made],
        }
        (self.state / "config.json").write_text(json.dumps(config))
        (self.state / "hosts.json").write_text(json.dumps([vars(host) for host in made]))
        (self.state / "ready").unlink(missing_ok=True)
        log = self.state / "world.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "private", program, self.state / "config.json"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        (self.state / "world.pid").write_text(str(process.pid))
        until, told = begun + UP_SECONDS, time.monotonic()
        while not (self.state / "ready").exists():
            if process.poll() is not None or time.monotonic() > until:
                raise BenchError(f"the hosts did not come up: {' | '.join(log.read_text().splitlines()[-5:])}")
            if time.monotonic() - told > 10:
                told = time.monotonic()
                say((log.read_text().splitlines() or ["..."])[-1])
            time.sleep(0.05)
        took = time.monotonic() - begun
        say(f"{count} hosts are up after {took:.1f} s")
        return took

    def down(self) -> None:
        """End the world; with its process all that it made is gone."""
        pid = self.pid()
        if pid is not None:
            os.kill(pid, signal.SIGTERM)
            for _ in range(600):
                if self.pid() is None:
                    break
                time.sleep(0.05)
            else:
                os.kill(pid, signal.SIGKILL)
        (self.state / "world.pid").unlink(missing_ok=True)

    def ask(self, method: str, path: str) -> bytes:
        """A request to the world's control socket. Raises BenchError."""
        connection = _Local(str(self.state / "control.sock"))
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            body = answer.read()
        except OSError as error:
            raise BenchError(f"the hosts are not up: {error}") from error
        finally:
            connection.close()
        if answer.status != http.HTTPStatus.OK:
            raise BenchError(f"{path}: {body.decode()}")
        return body

    def delay(self, milliseconds: float) -> None:
        """The round-trip time that is added between controller and hosts."""
        self.ask("POST", f"/delay?ms={milliseconds:g}")

    def mode(self, mode: str) -> None:
        """What becomes of the commands of SSH sessions: `record NAME`, `play NAME`, or "" to run them (README.md, replay)."""
        self.ask("POST", f"/mode?{urlencode({'mode': mode})}")

    def reset(self) -> None:
        """Set all counts to 0."""
        self.ask("POST", "/reset")

    def counts(self) -> dict[str, dict[str, int]]:
        """What was counted since the last reset, by host; `cluster` has the API requests that are about no single node."""
        return cast("dict[str, dict[str, int]]", json.loads(self.ask("GET", "/counts")))

    def memory(self) -> float:
        """What the hosts and their stand-ins hold, in MiB: the proportional share (PSS) of each process."""
        total = 0
        world = self.pid()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if not _below(int(folder.name), world):
                    continue
                for line in (folder / "smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        total += int(line.split()[1])
            except (OSError, ValueError):
                continue
        return total / 1024

    def _compile(self) -> tuple[Path, Path]:
        """The world's program (Go) and the hosts' program (C, static)."""
        program, init = self.state / "world.bin", self.state / "bench-init"
        for tool, package in (("go", "golang-go"), ("gcc", "gcc")):
            if shutil.which(tool) is None:
                raise BenchError(f"{tool} is missing: install the package {package}")
        _run("go", "build", "-o", program, ".", cwd=HERE / "server")
        _run("gcc", "-static", "-Os", f'-DVERSION="{VERSION}"', HERE / "node" / "host.c", "-o", init)
        return program, init

    def _layer(self, init: Path) -> None:
        """What all hosts share over Debian: stand-ins, the kubelet's files, sshd's configuration and keys."""
        layer, node = self.state / "layer", HERE / "node"
        shutil.rmtree(layer, ignore_errors=True)
        layer.mkdir()
        for name in STAND_INS:
            _place(node / name, layer / "usr/bin" / name, 0o755)
        for path in ("usr/bin/kubelet", *(f"usr/local/bin/{name}" for name in COMPONENTS)):
            _place(init, layer / path, 0o755)
        _place(init, layer / "opt/bench/bench-shell", 0o755)
        _place(node / "boot.sh", layer / "opt/bench/boot.sh", 0o755)
        _place(node / "kubelet-help.txt", layer / "opt/bench/kubelet-help.txt")
        _place(node / "sshd_config", layer / "etc/ssh/sshd_config")
        units = ROOT / "tests" / "lab" / "files"
        _place(units / "kubeadm-kubelet.service", layer / "usr/lib/systemd/system/kubelet.service")
        _place(units / "10-kubeadm.conf", layer / "usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf")
        _place(node / "config.yaml", layer / "var/lib/kubelet/config.yaml")
        _text(layer / "var/lib/kubelet/kubeadm-flags.env", 'KUBELET_KUBEADM_ARGS=""\n')
        (layer / "etc/kubernetes/manifests").mkdir(parents=True, mode=0o755)
        (layer / "var/log/pods").mkdir(parents=True, mode=0o755)
        (layer / "var/log").chmod(0o755)
        keys = self.state / "keys"
        if not (keys / "id_ed25519").exists():
            keys.mkdir(mode=0o700, exist_ok=True)
            for name in ("id_ed25519", "host"):
                _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "daytwo bench", "-f", keys / name)
        _place(keys / "host", layer / "etc/ssh/ssh_host_ed25519_key", 0o600)
        _place(keys / "id_ed25519.pub", layer / "root/.ssh/authorized_keys", 0o600)
        for folder in ("root", "root/.ssh"):
            (layer / folder).chmod(0o700)

    def _access(self, made: list[Host]) -> None:
        """Inventory, ssh_config and known_hosts."""
        kind, key = (self.state / "keys" / "host.pub").read_text().split()[:2]
        known = self.state / "known_hosts"
        known.write_text("".join(f"{host.listen} {kind} {key}\n" for host in made))
        common = (
            f"  User root\n  IdentityFile {self.state}/keys/id_ed25519\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {known}\n  StrictHostKeyChecking yes\n  ConnectTimeout 20\n"
        )
        names = "".join(f"Host {host.name}\n  HostName {host.listen}\n" for host in made)
        self.ssh_config.write_text(f"{names}Host *\n{common}")
        # For daytwo's inventory: one pattern for all, as the documents advise for many hosts.
        (self.state / "ssh_config.all").write_text(f"Host *\n{common}")
        self.inventory.write_text(
            f'''"""The simulated hosts of the benchmark."""

access = {{
    "ssh_config_file": "{self.state}/ssh_config.all",
    "ssh_known_hosts_file": "{known}",
    "ssh_strict_host_key_checking": "yes",
}}
control_plane = [
{_entries(made, "control-plane")}]
workers = [
{_entries(made, "worker")}]
'''
        )


class _Local(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _entries(made: list[Host], role: str) -> str:
    return "".join(f'    ("{host.name}", {{"ssh_hostname": "{host.listen}", **access}}),\n' for host in made if host.role == role)


def _below(pid: int, ancestor: int | None) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        stat = Path(f"/proc/{pid}/stat").read_text()
        pid = int(stat.rpartition(")")[2].split()[1])
    return False


def _base() -> Path:
    """The unpacked root file system that all hosts share; made once."""
    archive = rootfs.archive(SUITE, PACKAGES)
    base = KEPT / archive.stem
    if not (base / ".complete").exists():
        shutil.rmtree(base, ignore_errors=True)
        base.mkdir(parents=True)
        say("unpacking the hosts' root file system")
        _run("tar", "--extract", "--numeric-owner", "--xattrs", "--file", archive, "--directory", base)
        (base / ".complete").touch()
    return base


def _place(source: Path, target: Path, mode: int = 0o644) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def _text(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    target.chmod(0o644)


def _run(*words: str | Path, cwd: Path | None = None) -> None:
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"{words[0]} failed: {(done.stderr or done.stdout).strip()[-1000:]}")
