"""One node: a systemd-nspawn machine with an overlay disk, a network namespace and cgroups of its own.

Several labs run beside each other: what a lab is called on this machine has its number in it (`Site`).
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.lab.tools import STATE, LabError, remove_tree, run, wait_until

PREFIX = "daytwo-lab"
BRIDGE = "labbr0"
CGROUPS = Path("/sys/fs/cgroup")
NAMESPACES = Path("/run/netns")
LABS = STATE / "labs"
# Of the names that hold it, a link's is the shortest: at most 15 letters. Nobody runs more labs on one machine.
NUMBERS = range(60)
# File systems that overlayfs cannot hold: containerd's own overlays, and what must survive with its locks and mounts.
OWN_FOLDERS = {"containerd": "/var/lib/containerd", "kubelet": "/var/lib/kubelet", "etcd": "/var/lib/etcd"}
# Sysctls of the whole machine that a kubelet or systemd writes: each node gets files of its own in their place.
PRIVATE_SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "vm/max_map_count",
    "vm/swappiness",
    "kernel/pid_max",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "fs/inotify/max_user_watches",
    "fs/inotify/max_user_instances",
    "fs/file-max",
)
SUPERVISOR = "tests.lab.supervisor"
BALANCER = "tests.lab.balancer"
API_PORT = 6443
# What nspawn exits with under --keep-unit when the node asks for a reboot (systemd-nspawn(1), EXIT STATUS).
REBOOT = 133


def unified() -> bool:
    """True on a host with cgroup v2 only; False where v1 hierarchies are mounted (hybrid or legacy)."""
    return (CGROUPS / "cgroup.controllers").exists()


def hierarchies() -> list[Path]:
    """Every cgroup hierarchy of this machine that a node gets a group in."""
    return [CGROUPS] if unified() else sorted({path.resolve() for path in CGROUPS.iterdir() if path.is_dir()})


@dataclass(frozen=True)
class Site:
    """What the lab of this number is called on this machine; nothing that is called otherwise is touched."""

    number: int

    @property
    def folder(self) -> Path:
        return LABS / str(self.number)

    @property
    def nodes(self) -> Path:
        """The folder with a folder for each node."""
        return self.folder / "nodes"

    @property
    def group(self) -> str:
        """Its group in each cgroup hierarchy, and the network namespace of its bridge."""
        return f"{PREFIX}-{self.number}"

    @property
    def leg(self) -> str:
        """This machine's link into its network."""
        return f"daytwolab{self.number}"

    @property
    def sockets(self) -> Path:
        """Where its SSH connections are shared. (A socket's path has at most 108 letters.)"""
        return Path(f"/run/{self.group}")

    def leftovers(self) -> list[str]:
        """Names of all nodes of which anything is there: a folder, a supervisor, a network namespace or a cgroup."""
        names = {folder.name for folder in supervisors().values() if folder.parent == self.nodes}
        for folder, prefix in ((self.nodes, ""), (NAMESPACES, f"{self.group}-")):
            if folder.is_dir():
                names |= {entry.name.removeprefix(prefix) for entry in folder.iterdir() if entry.name.startswith(prefix)}
        if unified():
            listed = run("systemctl", "list-units", "--all", "--plain", "--no-legend", f"{self.group}-*.scope", check=False).stdout
            names |= set(re.findall(rf"^{self.group}-(\S+)\.scope", listed, re.MULTILINE))
        else:
            for hierarchy in hierarchies():
                if (hierarchy / self.group).is_dir():
                    names |= {entry.name for entry in (hierarchy / self.group).iterdir() if entry.is_dir()}
        return sorted(names)

    @property
    def used(self) -> bool:
        """Anything of this number is there, whoever made it: another root of this machine has state files of its own."""
        places = [self.folder, NAMESPACES / self.group, Path("/sys/class/net") / self.leg]
        return any(place.exists() for place in places) or bool(self.leftovers())


def supervisors() -> dict[int, Path]:
    """The node folder of every supervisor in this network namespace, by PID: of all labs, and of any other state folder.

    Under another root (a chroot, a container on the host's network) the same path is another folder: /proc/PID/root/...
    """
    found: dict[int, Path] = {}
    here = os.readlink("/proc/self/ns/net")
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if words[1:3] == ["-m", SUPERVISOR] and len(words) > 4 and os.readlink(process / "ns/net") == here:
                root = process / "root"
                found[int(process.name)] = Path(words[4]) if root.samefile("/") else Path(f"{root}{words[4]}")
        except OSError:
            continue
    return found


def unmount_below(folder: Path) -> None:
    """Unmount whatever is mounted in a folder, the innermost first."""
    inside = str(folder.resolve()) + "/"
    points = [line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    # Blanks and the like stand as octal escapes there (proc_pid_mountinfo(5)).
    plain = [re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), point) for point in points]
    for point in reversed([point for point in plain if point.startswith(inside)]):
        run("umount", point)


def candidates(number: int) -> tuple[str, ...]:
    """The /24 networks for the lab of this number, in this order; the last is set aside for measurements (RFC 2544), for a machine
    whose VPN routes all private ranges."""
    return tuple(
        f"{net}.{first + number}" for net, first in (("10.77", 0), ("10.99", 77), ("172.27", 77), ("192.168", 177), ("198.18", 77))
    )


def free_prefix(routes: Iterable[str], number: int = 0) -> str | None:
    """The first candidate whose /24 overlaps no destination in `routes` (`10.0.0.0/8`, `192.168.1.7`, `default`)."""
    taken = []
    for route in routes:
        network = ipaddress.ip_network("0.0.0.0/0" if route == "default" else route, strict=False)
        # A default route, in one piece or in two halves as VPNs write it, gives way to the lab's own.
        if network.prefixlen > 1:
            taken.append(network)
    for prefix in candidates(number):
        if not any(ipaddress.ip_network(f"{prefix}.0/24").overlaps(network) for network in taken):
            return prefix
    return None


def _namespace_up(name: str) -> None:
    """A network namespace of this name that works, its loopback up."""
    if run("ip", "-n", name, "link", "set", "lo", "up", check=False).returncode == 0:
        return
    # Its file can be there without the namespace, where making or removing it was cut short.
    run("ip", "netns", "del", name, check=False)
    run("ip", "netns", "add", name)
    run("ip", "-n", name, "link", "set", "lo", "up")


def _has_link(namespace: str | None, link: str) -> bool:
    where = ["-n", namespace] if namespace else []
    return run("ip", *where, "link", "show", link, check=False).returncode == 0


@dataclass(frozen=True)
class Network:
    """A lab's /24: its first three numbers with dots, such as 10.77.0."""

    site: Site
    prefix: str

    @property
    def gateway(self) -> str:
        return f"{self.prefix}.1"

    @staticmethod
    def choose(site: Site) -> Network:
        """A private /24 that no route of this machine covers."""
        # All tables: a VPN keeps its routes in one of its own.
        routes = json.loads(run("ip", "-json", "-4", "route", "show", "table", "all").stdout or "[]")
        prefix = free_prefix((route["dst"] for route in routes), site.number)
        if prefix is None:
            tried = ", ".join(candidates(site.number))
            raise LabError(f"the lab's network finds no free /24 on this machine: routes cover all of {tried}")
        return Network(site, prefix)

    def up(self) -> None:
        """The bridge and this machine's leg in it; of a network that is half there, what is missing is made."""
        inside, leg = self.site.group, self.site.leg
        _namespace_up(inside)
        if not _has_link(inside, BRIDGE):
            run("ip", "-n", inside, "link", "add", BRIDGE, "type", "bridge")
        run("ip", "-n", inside, "link", "set", BRIDGE, "up")
        if not (_has_link(None, leg) and _has_link(inside, "uplink")):
            run("ip", "link", "del", leg, check=False)
            run("ip", "link", "add", leg, "type", "veth", "peer", "name", "uplink", "netns", inside)
        run("ip", "-n", inside, "link", "set", "uplink", "master", BRIDGE, "up")
        run("ip", "addr", "replace", f"{self.gateway}/24", "dev", leg)
        run("ip", "link", "set", leg, "up")

    def down(self) -> None:
        run("ip", "link", "del", self.site.leg, check=False)
        if (NAMESPACES / self.site.group).exists():
            run("ip", "netns", "del", self.site.group)


@dataclass(frozen=True)
class Machine:
    """A node by name. `layers` are the read-only folders of its disk, the uppermost first."""

    name: str
    number: int
    network: Network
    layers: tuple[Path, ...]

    @property
    def folder(self) -> Path:
        return self.network.site.nodes / self.name

    @property
    def address(self) -> str:
        return f"{self.network.prefix}.{self.number}"

    @property
    def namespace(self) -> str:
        return f"{self.network.site.group}-{self.name}"

    @property
    def disk(self) -> Path:
        return self.folder / "disk"

    # ---- running or not

    @property
    def supervisor(self) -> int | None:
        """PID of the process that keeps the node running; None when there is none."""
        return min((pid for pid, folder in supervisors().items() if folder == self.folder), default=None)

    def start(self) -> None:
        """Boot the node; it answers ssh a second or two later (wait_ssh)."""
        if self.supervisor is not None:
            return
        self._mount()
        self.plug_in()
        self._make_groups()
        log = (self.folder / "console.log").open("ab")
        command = [sys.executable, "-m", SUPERVISOR, self.name, str(self.folder), self.network.site.group, *self._command()]
        if unified():
            scope = ["systemd-run", "--scope", "--quiet", "--collect", f"--unit={self.namespace}", "--property=Delegate=yes"]
            command = [*scope, "--", *command]
        started = subprocess.Popen(
            command, cwd=Path(__file__).resolve().parents[2], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        log.close()
        wait_until(f"the supervisor of {self.name} (see {self.folder}/console.log)", lambda: self.supervisor or _gone(started), 10)

    def kill(self) -> None:
        """Pull the plug: every process of the node is killed at once. What was not synced by the node's programs is kept
        by this machine's page cache, so this is the death of a machine's processes, not of its disk."""

        def ended() -> bool:
            running = [pid for pid, folder in supervisors().items() if folder == self.folder]
            for pid in running:
                try:
                    os.kill(pid, signal.SIGTERM)  # no further boot
                except ProcessLookupError:
                    continue
            self._kill_group()
            return not running

        wait_until(f"the end of {self.name}'s supervisor", ended, 20)
        self._unplug()
        self._unmount()
        self._remove_groups()

    def wait_ssh(self, timeout: float = 120) -> None:
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
        # unattended-upgrades has this hook. A node without one that writes /run/reboot-required cannot say that it needs no reboot.
        hook = etc / "kernel/postinst.d/unattended-upgrades"
        hook.parent.mkdir(parents=True, exist_ok=True)
        hook.write_text("#!/bin/sh\n")
        hook.chmod(0o755)
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
        run("mount", "-t", "overlay", self.namespace, "-o", options, self.disk)

    def _unmount(self) -> None:
        def gone() -> bool:
            if os.path.ismount(self.disk):
                run("umount", self.disk, check=False)
            return not os.path.ismount(self.disk)

        wait_until(f"the disk of {self.name} to be free", gone, 30)

    # ---- the network

    def plug_in(self) -> None:
        """The node's cable to the bridge; where it is only half there, or was torn off a running node, it is made anew."""
        port, bridge = f"p-{self.name}", self.network.site.group
        _namespace_up(self.namespace)
        if not (_has_link(self.namespace, "eth0") and _has_link(bridge, port)):
            run("ip", "-n", bridge, "link", "del", port, check=False)
            run("ip", "-n", self.namespace, "link", "del", "eth0", check=False)
            # A fixed MAC: with a random one the neighbours' caches are wrong for many seconds after a reset.
            mac = f"02:77:00:00:{self.network.site.number:02x}:{self.number:02x}"
            add = ["ip", "link", "add", "eth0", "netns", self.namespace, "address", mac, "type", "veth"]
            run(*add, "peer", "name", port, "netns", bridge)
        run("ip", "-n", bridge, "link", "set", port, "master", BRIDGE, "up")
        run("ip", "-n", self.namespace, "addr", "replace", f"{self.address}/24", "dev", "eth0")
        run("ip", "-n", self.namespace, "link", "set", "eth0", "up")
        run("ip", "-n", self.namespace, "route", "replace", "default", "via", self.network.gateway)

    def _unplug(self) -> None:
        if (NAMESPACES / self.namespace).exists():
            run("ip", "netns", "del", self.namespace)

    # ---- processes

    def _command(self) -> list[str]:
        binds = [f"--bind={self.folder}/own/{own}:{path}" for own, path in OWN_FOLDERS.items()]
        devices = [f"--bind={path}" for path in ("/dev/kmsg", "/dev/fuse", "/dev/net/tun") if Path(path).exists()]
        return [
            "systemd-nspawn",
            "--quiet",
            "--boot",
            # nspawn keeps a folder for each machine's name; the node itself is called as in the other labs.
            f"--machine={self.namespace}",
            f"--hostname={self.name}",
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
            return [hierarchy / self.network.site.group / self.name for hierarchy in hierarchies()]
        found = run("systemctl", "show", f"{self.namespace}.scope", "--property=ControlGroup", "--value", check=False)
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
            try:
                group.parent.rmdir()
            except OSError:
                continue  # another node's group is in it, or another thread was first


@dataclass(frozen=True)
class Balancer(Machine):
    """The load balancer before the API servers at `backends` (addresses). No node: it has no disk, and one process of this
    machine's own (tests.lab.balancer) runs in its network namespace, which no firewall of this machine stands before."""

    backends: tuple[str, ...]

    def wait_open(self) -> None:
        """Returns when it takes connections, whether or not an API server is behind it yet."""

        def taken() -> bool:
            try:
                socket.create_connection((self.address, API_PORT), timeout=1).close()
            except OSError:
                return False
            return True

        wait_until(f"the load balancer at {self.address} (see {self.folder}/console.log)", taken, 30)

    def _mount(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def _command(self) -> list[str]:
        # Not `ip netns exec`: its copy of all mounts would keep the disks of nodes that were killed since.
        enter = ["nsenter", f"--net={NAMESPACES / self.namespace}", "--"]
        places = [f"{address}:{API_PORT}" for address in (self.address, *self.backends)]
        return [*enter, sys.executable, "-m", BALANCER, *places]


def _members(group: Path) -> set[int]:
    found: set[int] = set()
    for folder, _, _ in os.walk(group):
        try:
            found |= {int(pid) for pid in (Path(folder) / "cgroup.procs").read_text().split()}
        except OSError:
            continue
    return found


def _gone(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        raise LabError(f"the node's supervisor ended at once with {process.returncode}")
