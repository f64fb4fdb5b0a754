"""One node: a systemd-nspawn machine with an overlay disk, a network namespace and cgroups of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.lab.tools import STATE, LabError, remove_tree, run, wait_until

BRIDGE_NAMESPACE = "daytwo-lab"
BRIDGE = "labbr0"
HOST_LEG = "daytwolab0"
CGROUPS = Path("/sys/fs/cgroup")
# The lab's own group in each cgroup hierarchy; nothing outside it is touched.
GROUP = "daytwo-lab"
# File systems that overlayfs cannot hold: containerd's own overlays, and what must survive with its locks and mounts.
OWN_FOLDERS = {"containerd": "/var/lib/containerd", "kubelet": "/var/lib/kubelet", "etcd": "/var/lib/etcd"}
# Sysctls of the whole machine that a kubelet or systemd writes: each node gets files of its own in their place.
PRIVATE_SYSCTLS = (
    "vm/overcommit_memory vm/panic_on_oom vm/max_map_count vm/swappiness kernel/pid_max kernel/panic kernel/panic_on_oops "
    "kernel/keys/root_maxkeys kernel/keys/root_maxbytes fs/inotify/max_user_watches fs/inotify/max_user_instances fs/file-max"
).split()
# What nspawn exits with under --keep-unit when the node asks for a reboot (systemd-nspawn(1), EXIT STATUS).
REBOOT = 133


def unified() -> bool:
    """True on a host with cgroup v2 only; False where v1 hierarchies are mounted (hybrid or legacy)."""
    return (CGROUPS / "cgroup.controllers").exists()


def hierarchies() -> list[Path]:
    """Every cgroup hierarchy of this machine that a node gets a group in."""
    return [CGROUPS] if unified() else sorted({path.resolve() for path in CGROUPS.iterdir() if path.is_dir()})


@dataclass(frozen=True)
class Network:
    """The lab's /24: its first three numbers with dots, such as 10.77.0."""

    prefix: str

    @property
    def gateway(self) -> str:
        return f"{self.prefix}.1"

    @staticmethod
    def choose() -> Network:
        """A private /24 that no route of this machine covers."""
        routes = run("ip", "-4", "route", "show").stdout
        for prefix in ("10.77.0", "10.99.77", "172.27.77", "192.168.177"):
            if prefix not in routes and f"{prefix.rsplit('.', 1)[0]}.0.0/16" not in routes:
                return Network(prefix)
        raise LabError("no private /24 is free on this machine for the lab's network")

    def up(self) -> None:
        if (Path("/run/netns") / BRIDGE_NAMESPACE).exists():
            return
        run("ip", "netns", "add", BRIDGE_NAMESPACE)
        run("ip", "-n", BRIDGE_NAMESPACE, "link", "set", "lo", "up")
        run("ip", "-n", BRIDGE_NAMESPACE, "link", "add", BRIDGE, "type", "bridge")
        run("ip", "-n", BRIDGE_NAMESPACE, "link", "set", BRIDGE, "up")
        run("ip", "link", "add", HOST_LEG, "type", "veth", "peer", "name", "uplink", "netns", BRIDGE_NAMESPACE)
        run("ip", "-n", BRIDGE_NAMESPACE, "link", "set", "uplink", "master", BRIDGE, "up")
        run("ip", "addr", "add", f"{self.gateway}/24", "dev", HOST_LEG)
        run("ip", "link", "set", HOST_LEG, "up")

    @staticmethod
    def down() -> None:
        run("ip", "link", "del", HOST_LEG, check=False)
        if (Path("/run/netns") / BRIDGE_NAMESPACE).exists():
            run("ip", "netns", "del", BRIDGE_NAMESPACE)


@dataclass(frozen=True)
class Machine:
    """A node by name. `layers` are the read-only folders of its disk, the uppermost first."""

    name: str
    number: int
    network: Network
    layers: tuple[Path, ...]

    @property
    def folder(self) -> Path:
        return STATE / "nodes" / self.name

    @property
    def address(self) -> str:
        return f"{self.network.prefix}.{self.number}"

    @property
    def namespace(self) -> str:
        return f"{BRIDGE_NAMESPACE}-{self.name}"

    @property
    def disk(self) -> Path:
        return self.folder / "disk"

    # ---- running or not

    @property
    def supervisor(self) -> int | None:
        """PID of the process that keeps the node running; None when there is none (a PID that was reused is not it)."""
        try:
            pid, start = (self.folder / "supervisor").read_text().split()
        except (FileNotFoundError, ValueError):
            return None
        return int(pid) if start_ticks(int(pid)) == start else None

    def start(self) -> None:
        """Boot the node; it answers ssh a second or two later (wait_ssh)."""
        if self.supervisor is not None:
            return
        self._mount()
        self._plug_in()
        self._make_groups()
        log = (self.folder / "console.log").open("ab")
        command = [sys.executable, "-m", "tests.lab.supervisor", self.name, str(self.folder), *self._nspawn()]
        if unified():
            scope = ["systemd-run", "--scope", "--quiet", "--collect", f"--unit={GROUP}-{self.name}", "--property=Delegate=yes"]
            command = [*scope, "--", *command]
        started = subprocess.Popen(
            command,
            cwd=Path(__file__).resolve().parents[2],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()
        wait_until(
            f"the supervisor of {self.name} (see {self.folder}/console.log)",
            lambda: self.supervisor or _gone(started),
            10,
        )

    def kill(self) -> None:
        """Pull the plug: every process of the node is killed at once. What was not synced by the node's programs is kept
        by this machine's page cache, so this is the death of a machine's processes, not of its disk."""
        supervisor = self.supervisor
        if supervisor is not None:
            os.kill(supervisor, signal.SIGTERM)  # no further boot
        self._kill_group()
        if supervisor is not None:
            wait_until(f"the end of {self.name}'s supervisor", lambda: start_ticks(supervisor) is None or None, 20)
        (self.folder / "supervisor").unlink(missing_ok=True)
        self._unplug()
        self._unmount()
        self._remove_groups()

    def wait_ssh(self, timeout: float = 60) -> None:
        def greeting() -> bool:
            try:
                with socket.create_connection((self.address, 22), timeout=1) as connection:
                    connection.settimeout(2)
                    return connection.recv(4).startswith(b"SSH")
            except OSError:
                return False

        wait_until(f"{self.name} to answer ssh (see {self.folder}/console.log)", greeting, timeout)

    # ---- the disk

    def make_disk(self) -> None:
        """An empty upper layer with the node's name, its ssh host key and its private sysctls."""
        for name in ("upper", "work", "disk", "sysctl", *(f"own/{own}" for own in OWN_FOLDERS)):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        etc = self.folder / "upper/etc"
        (etc / "ssh").mkdir(parents=True, exist_ok=True)
        (etc / "hostname").write_text(f"{self.name}\n")
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n{self.address} {self.name}\n")
        (etc / "machine-id").write_text("")
        key = etc / "ssh/ssh_host_ed25519_key"
        if not key.exists():
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", key)
        for name in PRIVATE_SYSCTLS:
            copy = self.folder / "sysctl" / name.replace("/", ".")
            if not copy.exists():
                copy.write_text((Path("/proc/sys") / name).read_text())

    @property
    def host_key(self) -> str:
        for layer in (self.folder / "upper", self.folder / "pristine/upper"):
            key = layer / "etc/ssh/ssh_host_ed25519_key.pub"
            if key.exists():
                return " ".join(key.read_text().split()[:2])
        raise LabError(f"{self.name} has no ssh host key")

    def freeze(self) -> None:
        """What the node's disk holds now is what `reset` goes back to. The node must be stopped."""
        remove_tree(self.folder / "pristine")
        (self.folder / "pristine").mkdir()
        (self.folder / "upper").rename(self.folder / "pristine/upper")
        run("cp", "--archive", "--reflink=auto", self.folder / "own", self.folder / "pristine/own")
        (self.folder / "upper").mkdir()

    def reset(self) -> None:
        """Back to the pristine disk. The node must be stopped."""
        if self.supervisor is not None or os.path.ismount(self.disk):
            raise LabError(f"{self.name} still runs; it cannot be reset")
        remove_tree(self.folder / "upper", self.folder / "work", self.folder / "own", self.folder / "sysctl")
        if (self.folder / "pristine/own").exists():
            run("cp", "--archive", "--reflink=auto", self.folder / "pristine/own", self.folder / "own")
        for name in ("upper", "work", "sysctl"):
            (self.folder / name).mkdir()
        for name in PRIVATE_SYSCTLS:
            (self.folder / "sysctl" / name.replace("/", ".")).write_text((Path("/proc/sys") / name).read_text())

    def _mount(self) -> None:
        if os.path.ismount(self.disk):
            return
        shutil.rmtree(self.folder / "work", ignore_errors=True)
        (self.folder / "work").mkdir()
        pristine = self.folder / "pristine/upper"
        lower = ":".join(str(layer) for layer in ((pristine, *self.layers) if pristine.exists() else self.layers))
        options = f"lowerdir={lower},upperdir={self.folder}/upper,workdir={self.folder}/work"
        run("mount", "-t", "overlay", f"{GROUP}-{self.name}", "-o", options, self.disk)

    def _unmount(self) -> None:
        def gone() -> bool:
            if os.path.ismount(self.disk):
                run("umount", self.disk, check=False)
            return not os.path.ismount(self.disk)

        wait_until(f"the disk of {self.name} to be free", gone, 30)

    # ---- the network

    def _plug_in(self) -> None:
        if (Path("/run/netns") / self.namespace).exists():
            return
        port = f"p-{self.name}"
        run("ip", "netns", "add", self.namespace)
        run("ip", "-n", self.namespace, "link", "set", "lo", "up")
        run("ip", "-n", BRIDGE_NAMESPACE, "link", "del", port, check=False)
        # A fixed MAC: with a random one the neighbours' caches are wrong for many seconds after a reset.
        mac = f"02:77:00:00:00:{self.number:02x}"
        add = ["ip", "link", "add", "eth0", "netns", self.namespace, "address", mac, "type", "veth"]
        run(*add, "peer", "name", port, "netns", BRIDGE_NAMESPACE)
        run("ip", "-n", BRIDGE_NAMESPACE, "link", "set", port, "master", BRIDGE, "up")
        run("ip", "-n", self.namespace, "addr", "add", f"{self.address}/24", "dev", "eth0")
        run("ip", "-n", self.namespace, "link", "set", "eth0", "up")
        run("ip", "-n", self.namespace, "route", "add", "default", "via", self.network.gateway)

    def _unplug(self) -> None:
        if (Path("/run/netns") / self.namespace).exists():
            run("ip", "netns", "del", self.namespace)

    # ---- processes

    def _nspawn(self) -> list[str]:
        binds = [f"--bind={self.folder}/own/{own}:{path}" for own, path in OWN_FOLDERS.items()]
        devices = [f"--bind={path}" for path in ("/dev/kmsg", "/dev/fuse", "/dev/net/tun") if Path(path).exists()]
        return [
            "systemd-nspawn",
            "--quiet",
            "--boot",
            f"--machine={self.name}",
            "--register=no",
            "--keep-unit",
            f"--directory={self.disk}",
            f"--network-namespace-path=/run/netns/{self.namespace}",
            "--resolv-conf=off",
            "--timezone=off",
            "--link-journal=no",
            "--capability=all",
            "--console=pipe",
            "--kill-signal=SIGRTMIN+3",
            f"--bind={self.folder}/sysctl:/opt/lab/sysctl",
            *binds,
            *devices,
        ]

    def groups(self) -> list[Path]:
        """The node's cgroups: one a hierarchy on v1; on v2 the delegated scope systemd made for it."""
        if not unified():
            return [hierarchy / GROUP / self.name for hierarchy in hierarchies()]
        found = run("systemctl", "show", f"{GROUP}-{self.name}.scope", "--property=ControlGroup", "--value", check=False)
        path = found.stdout.strip().lstrip("/")
        return [CGROUPS / path] if path else []

    def _make_groups(self) -> None:
        if unified():
            return
        for group in self.groups():
            parent = group.parent
            parent.mkdir(exist_ok=True)
            if (parent / "cpuset.cpus").exists():
                for name in ("cpuset.cpus", "cpuset.mems"):
                    (parent / name).write_text((parent.parent / name).read_text())
                (parent / "cgroup.clone_children").write_text("1")
            group.mkdir(exist_ok=True)

    def _kill_group(self) -> None:
        groups = [group for group in self.groups() if group.exists()]
        killers = [group / "cgroup.kill" for group in groups if (group / "cgroup.kill").exists()]
        for killer in killers:
            killer.write_text("1")

        def empty() -> bool:
            pids = {pid for group in groups for pid in _members(group)}
            for pid in pids if not killers else ():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            return not pids

        wait_until(f"the processes of {self.name} to end", empty, 30)

    def _remove_groups(self) -> None:
        if unified():
            return
        for group in self.groups():

            def removed(group: Path = group) -> bool:
                for folder, _, _ in os.walk(group, topdown=False):
                    try:
                        os.rmdir(folder)
                    except OSError:
                        continue
                return not group.exists()

            wait_until(f"the cgroup {group} to be empty", removed, 20)
            if not any(entry.is_dir() for entry in group.parent.iterdir()):
                group.parent.rmdir()


def _members(group: Path) -> set[int]:
    found: set[int] = set()
    for folder, _, _ in os.walk(group):
        try:
            found |= {int(pid) for pid in (Path(folder) / "cgroup.procs").read_text().split()}
        except OSError:
            continue
    return found


def start_ticks(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot; None when it is gone (or only its zombie is left)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields[19]


def _gone(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        raise LabError(f"the node's supervisor ended at once with {process.returncode}")
