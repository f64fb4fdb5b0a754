"""The cluster on the lab's nodes, and the verbs that people and tests use."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.lab import binaries, fingerprint, images, kubectl, registry, rootfs
from tests.lab.machine import API_PORT, Balancer, Machine, Network, Site, unified, unmount_below
from tests.lab.tools import (
    STATE,
    LabError,
    failed,
    locked,
    long_step,
    need_packages,
    parallel,
    remove_tree,
    replace_text,
    run,
    say,
    spent,
    wait_until,
)

REPOSITORY_ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"[a-z][a-z0-9]{0,7}|")
CONTROL_PLANE_SUITE = "bookworm"  # systemd 252
KUBEADM_WORKER_SUITE = "bookworm"
PLAIN_WORKER_SUITE = "trixie"  # systemd 257
POD_SUBNET = "10.244.{number}.0/24"
# The first address of kubeadm's default subnet of Services: the API's.
API_SERVICE = "10.96.0.1"
ADMIN = "/etc/kubernetes/admin.conf"
# A shutdown waits 90 s for an API server that has lost its etcd (systemd's DefaultTimeoutStopSec).
OFF_TIMEOUT = 180
# kubeadm's checks fail on a node that is no whole machine; its pull of images from nowhere alone takes 50 s.
PREFLIGHT = "preflight"
SUITES = (CONTROL_PLANE_SUITE, PLAIN_WORKER_SUITE)
# An API server with this grace stops in 2 s.
QUICK = "5s"
# A test's own commands go over one connection a node. One that is dead for 15 s is given up, one that nobody uses is closed.
ONE_CONNECTION = ("ControlMaster=auto", "ControlPersist=60", "ServerAliveInterval=5", "ServerAliveCountMax=3")


def check_machine() -> None:
    """One clear sentence where the lab cannot run."""
    if sys.platform != "linux":
        raise LabError(f"the lab needs Linux (systemd-nspawn); this is {sys.platform}")
    if os.geteuid() != 0:
        raise LabError("the lab needs root: it mounts, makes network namespaces and cgroups (try sudo make lab)")
    binaries.architecture()
    if "overlay" not in Path("/proc/filesystems").read_text():
        run("modprobe", "overlay", check=False) if shutil.which("modprobe") else None
        if "overlay" not in Path("/proc/filesystems").read_text():
            raise LabError("this kernel has no overlay file system, which the lab's disks are made of")


@dataclass(frozen=True)
class Shape:
    """What a lab is made of."""

    control_planes: int = 1
    workers: int = 2
    version: str = field(default_factory=binaries.version)  # of Kubernetes
    # --shutdown-watch-termination-grace-period of the API servers. Without it, as kubeadm leaves it, each stop of one takes the whole
    # 30 s of its pod's grace period, since watches are waited for. With it kubelets are quick as well (`kubelet_configuration`).
    watch_grace: str = ""

    def __str__(self) -> str:
        planes = f"{self.control_planes} control plane{'s' if self.control_planes > 1 else ''}"
        return f"Kubernetes {self.version}, {planes}, {self.workers} worker{'s' if self.workers > 1 else ''}"

    @classmethod
    def common(cls, control_planes: int, workers: int) -> Shape:
        """With the version that the environment names. One control plane comes back quickly; several are as kubeadm makes them."""
        return cls(control_planes, workers, watch_grace=QUICK if control_planes == 1 else "")


def shape(name: str) -> Shape:
    """The shapes that tests ask for. LabError for another name."""
    match name:
        case "small":
            return Shape.common(1, 2)
        case "wide":
            return Shape.common(3, 5)
        case "older":
            return Shape(1, 2, binaries.OLDER_VERSION, QUICK)
    raise LabError(f"no test asks for a lab called {name!r}; there are {', '.join(SHAPES)}")


SHAPES = ("small", "wide", "older")


LOOK = ("get", "nodes,pods,leases", "--all-namespaces", "-o", "json")
EVIDENCE = {
    "kubelet.log": "journalctl -u kubelet --no-pager -o short-precise --lines 5000",
    "journal.log": "journalctl --no-pager -o short-precise --lines 10000",
    "containers.tar.gz": "tar -C /var/log -czf - pods",
    "daytwo.tar.gz": "[ ! -d /var/lib/daytwo ] || tar -C /var/lib -czf - daytwo",
    "processes.txt": "ps -eo pid,ppid,lstart,args; df -h; free -m",
}


class Lab:
    """A checkout's lab of this name (LAB in the environment; none is the usual one). `nodes` are names in the order control planes,
    then workers."""

    def __init__(self, name: str | None = None, checkout: Path = REPOSITORY_ROOT) -> None:
        self.name = os.environ.get("LAB", "") if name is None else name
        if not NAME.fullmatch(self.name):
            raise LabError(f"LAB={self.name!r} cannot be a lab's name: at most 8 small letters and digits, a letter first")
        self.checkout = checkout
        self._entry: registry.Entry | None = None
        self._load()

    # ---- what there is

    def _load(self) -> None:
        self._entry = registry.find(self.checkout, self.name)

    @property
    def _plan(self) -> dict[str, Any]:
        return self._entry.plan if self._entry else {}

    @property
    def _site(self) -> Site:
        if self._entry is None:
            raise LabError(f"there is no {self}; `{self._make} lab` makes one")
        return self._entry.site

    @property
    def _network(self) -> Network:
        return Network(self._site, self._plan.get("network", ""))

    def __str__(self) -> str:
        return f"lab {self.name}" if self.name else "lab"

    @property
    def _make(self) -> str:
        return f"LAB={self.name} make" if self.name else "make"

    @property
    def exists(self) -> bool:
        return bool(self._plan.get("complete"))

    @property
    def shape(self) -> Shape | None:
        """What the lab was made as; None where there is none."""
        return Shape(**self._plan["shape"]) if self.exists else None

    @property
    def shape_name(self) -> str | None:
        """Which of SHAPES the lab has; None where there is no lab, or one of another shape."""
        return next((name for name in SHAPES if shape(name) == self.shape), None)

    @property
    def version(self) -> str:
        return str(self._plan["shape"]["version"])

    @property
    def nodes(self) -> list[str]:
        return list(self._plan.get("nodes", {}))

    @property
    def control_planes(self) -> list[str]:
        return [name for name in self.nodes if name.startswith("cp")]

    @property
    def workers(self) -> list[str]:
        return [name for name in self.nodes if not name.startswith("cp")]

    def machine(self, name: str) -> Machine:
        try:
            node = self._plan["nodes"][name]
        except KeyError:
            raise LabError(f"the lab has no node {name}; it has {', '.join(self.nodes) or 'none'}") from None
        return Machine(name, node["number"], self._network, tuple(Path(path) for path in node["layers"]))

    def address(self, name: str) -> str:
        return self.machine(name).address

    @property
    def balancer(self) -> Balancer | None:
        """The load balancer before the API servers; None where there is one control plane, which needs none."""
        if len(self.control_planes) < 2:
            return None
        backends = tuple(self.address(name) for name in self.control_planes)
        return Balancer("lb", 5, self._network, (), backends)

    @property
    def endpoint(self) -> str:
        """ADDRESS:PORT of the API as the cluster's kubeconfigs name it."""
        return f"{(self.balancer or self.machine(self.control_planes[0])).address}:{API_PORT}"

    @property
    def access(self) -> Path:
        """The folder that says how to get in."""
        return self.checkout / ".lab" / self.name

    @property
    def ssh_config(self) -> Path:
        return self.access / "ssh_config"

    @property
    def kubeconfig(self) -> Path:
        return self.access / "kubeconfig"

    # ---- what tests do with nodes

    def run(
        self, node: str, command: str, *, input: str | None = None, check: bool = True, user: str = "root", timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command on a node over ssh; LabError when it fails, unless check is False. All commands of a user to a node share
        one connection (`hang_up` ends it). Where that breaks under a command that must not fail, the command is run once more."""
        path = f"ControlPath={self._site.sockets}/%r@%h"
        ssh = ["ssh", "-F", str(self.ssh_config), "-o", "LogLevel=ERROR", "-l", user]
        shared = [word for option in (*ONE_CONNECTION, path) for word in ("-o", option)]

        def once(check: bool) -> subprocess.CompletedProcess[str]:
            given = input if input is not None else ""
            return run(*ssh, *shared, node, command, input=given, check=check, timeout=timeout)

        with spent("commands of tests on nodes"):
            done = once(check=False)
            if not check or done.returncode == 0:
                return done
            # ssh says nothing when the connection that it shares ends under it.
            lost = done.returncode == 255 and not done.stderr.strip()
            # On a busy machine it ends between the look at its socket and the first word: the command has not begun.
            unbegun = done.returncode == 255 and done.stderr.startswith("muxclient: master hello exchange failed")
            if unbegun or (lost and run(*ssh, "-o", path, "-O", "check", node, check=False).returncode != 0):
                say(f"the connection to {node} was lost; running the command again")
                return once(check=True)
            raise failed([*ssh, node, command], done)

    def hang_up(self, *names: str) -> None:
        """End the shared connections to these nodes (all, when none is named): before they would only be found dead."""
        if self._entry is None or not self._site.sockets.is_dir():
            return
        addresses = {self.address(name) for name in names or self.nodes}
        for socket in self._site.sockets.iterdir():
            user, _, address = socket.name.partition("@")
            if address in addresses:
                run("ssh", "-o", f"ControlPath={socket}", "-O", "exit", f"{user}@{address}", check=False, timeout=30)
                socket.unlink(missing_ok=True)

    def kubectl(self, *arguments: str, input: str | None = None, check: bool = True) -> str:
        """kubectl with the lab's admin rights, run on the first control-plane node; the most usual commands need no program. What is
        deleted may be gone already: a command whose connection broke is run twice."""
        with spent("commands of tests on nodes"):
            if (told := kubectl.answer(self.kubeconfig, arguments, input, check)) is not None:
                return told
        again = ["--ignore-not-found"] if arguments[0] == "delete" else []
        words = shlex.join(["kubectl", f"--kubeconfig={ADMIN}", *arguments, *again])
        return self.run(self.control_planes[0], words, input=input, check=check).stdout

    @contextmanager
    def frozen(self, node: str, process: str) -> Iterator[None]:
        """No process of that name goes on meanwhile. One that the kubelet starts in its place, after its liveness probe, is stopped, too:
        how long a test takes on a slow machine changes nothing."""
        name, flag = shlex.quote(process[:15]), f"/run/frozen-{process}"  # comm, as the kernel cuts it (proc(5))
        hold = f"while [ -e {flag} ]; do pkill -STOP -x {name}; sleep 0.2; done; pkill -CONT -x {name}; rm -f {flag}.held"
        self.run(node, f"pkill -STOP -x {name} && touch {flag} {flag}.held && {{ setsid sh -c '{hold}' >/dev/null 2>&1 </dev/null & }}")
        try:
            yield
        finally:
            self.run(node, f"rm -f {flag}")
            wait_until(f"{process} on {node} to go on", lambda: self.run(node, f"[ ! -e {flag}.held ]", check=False).returncode == 0, 30)

    def run_pod(self, name: str, node: str, labels: str = "") -> None:
        """A working pod on a node, without a controller; returns when it runs."""
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": dict([labels.split("=", 1)]) if labels else {}},
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": 1,
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "app", "image": f"{images.REPOSITORY}/app:1", "imagePullPolicy": "Never"}],
            },
        }
        self.kubectl("apply", "-f", "-", input=json.dumps(pod))
        self.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=280s")

    def load_extra(self, name: str) -> str:
        """One of binaries.EXTRAS as an image on all nodes, which have no registry; returns its name. It is built once, when it is first
        wanted."""
        return self.load_image(f"{images.REPOSITORY}/{name}:{binaries.EXTRAS[name].version}", lambda: binaries.extra(name))

    def load_image(self, image: str, binary: Callable[[], Path]) -> str:
        """An image of one program on all nodes that do not have it; returns its name. `binary` makes the program when it is wanted."""
        wanting = [node for node in self.nodes if image not in self.run(node, "ctr -n k8s.io images ls -q").stdout.split()]
        if wanting:
            data = images.component_tar(image, binary())
            with long_step(f"loading {image} on {', '.join(wanting)}"):
                parallel(*(partial(self._import, node, data) for node in wanting))
        return image

    def _import(self, node: str, data: bytes) -> None:
        words = ["ssh", "-F", str(self.ssh_config), "-o", "LogLevel=ERROR", node, "ctr -n k8s.io images import - >/dev/null"]
        done = subprocess.run(words, input=data, capture_output=True, check=False, timeout=300)
        if done.returncode:
            raise LabError(f"{node} cannot import an image: {done.stderr.decode(errors='replace').strip()[-300:]}")

    def connect_pods(self) -> None:
        """What a network plugin and kube-proxy do on other clusters, and nothing here does: pods reach pods and nodes elsewhere, and the
        API by its Service. The nodes themselves do not reach Services. It lasts until a node boots."""
        for node in self.nodes:
            routes = [
                f"ip route replace {POD_SUBNET.format(number=number)} via {self.address(other)}"
                for number, other in enumerate(self.nodes)
                if other != node
            ]
            rule = f"PREROUTING -d {API_SERVICE}/32 -p tcp --dport 443 -j DNAT --to-destination {self.endpoint}"
            table = "iptables -w -t nat"
            self.run(node, "; ".join(["set -e", *routes, f"{table} -C {rule} 2>/dev/null || {table} -A {rule}"]))

    def start(self, name: str) -> None:
        self.hang_up(name)
        self._network_up()
        self.machine(name).start()
        self.machine(name).wait_ssh()

    def kill(self, name: str) -> None:
        self.machine(name).kill()
        self.hang_up(name)

    def stop(self, name: str) -> None:
        """Shut a node down in order; returns when it is off."""
        machine = self.machine(name)
        if machine.supervisor is not None:
            self.run(name, "systemctl poweroff", check=False)
            wait_until(f"{name} to power off (see {machine.folder}/console.log)", lambda: machine.supervisor is None, OFF_TIMEOUT)
        machine.kill()  # what is left of it: its cable, its disk's mount
        self.hang_up(name)

    def powered(self, name: str, what: str = "status") -> bool:
        """What a BMC does: `on` and `off` do not wait for the node's system. True while the node has power."""
        machine = self.machine(name)
        if what == "on" and machine.supervisor is None:
            machine.kill()  # what is left of it: its disk's mount
            machine.start()
        elif what == "off":
            machine.kill()
        return machine.supervisor is not None

    def reboot(self, name: str) -> None:
        """Reboot a node in order; returns when it answers ssh under a new boot id."""
        before = self.boot_id(name)
        if before is None:
            raise LabError(f"{name} does not answer; `start {name}` boots a node that is off")
        with spent("nodes restarted"):
            self.run(name, "systemctl reboot", check=False)
            self.hang_up(name)
            wait_until(f"{name} to be back", lambda: self.boot_id(name) not in (None, before), OFF_TIMEOUT)

    def boot_id(self, name: str) -> str | None:
        """The id of the boot a node runs in; None while it does not answer."""
        try:
            told = self.run(name, "cat /proc/sys/kernel/random/boot_id", check=False, timeout=15)
        except LabError:
            return None
        return told.stdout.strip() or None

    def reset(self, *names: str) -> None:
        """These nodes (all, when none is named) as they were right after `up`, and Ready again. Several control planes only
        go back together: LabError otherwise, and nothing is touched."""
        with self._locked():
            chosen = self._resettable(names)
            with long_step(f"putting {', '.join(chosen)} back to pristine"), spent("labs reset"):
                self._reset(chosen)

    def _resettable(self, names: Sequence[str]) -> list[str]:
        if not self.exists:
            raise LabError(f"there is no {self}; `{self._make} lab` makes one")
        for name in names:
            self.machine(name)
        chosen = list(dict.fromkeys(names)) or self.nodes
        planes = [name for name in self.control_planes if name in chosen]
        others = [name for name in self.control_planes if name not in chosen]
        if planes and others:
            raise LabError(
                f"{', '.join(planes)} cannot be reset without {', '.join(others)}: an etcd member that comes back with old data "
                "has forgotten what it agreed to; reset all nodes (name none), or workers only"
            )
        return chosen

    def _reset(self, chosen: list[str]) -> None:
        if self.balancer and self.control_planes[0] in chosen:
            self.balancer.kill()  # and with it all connections to the API servers that go
        self.hang_up(*chosen)
        parallel(*(partial(self._reset_disk, name) for name in chosen))
        self._network_up()
        # Workers would only wait for the control plane; it is started first, its boot takes longest.
        for name in sorted(chosen, key=self.nodes.index):
            self.machine(name).start()
        parallel(*(self.machine(name).wait_ssh for name in chosen))
        self._write_access()
        self._wait_ready(chosen)

    def _reset_disk(self, name: str) -> None:
        machine = self.machine(name)
        machine.kill()
        machine.reset()

    # ---- up and down

    @contextmanager
    def _locked(self) -> Iterator[None]:
        place = f"{hashlib.sha256(str(self.checkout).encode()).hexdigest()[:12]}-{self.name or 'lab'}"
        with locked(STATE / "locks" / place, f"another process works on the {self}; waiting for it"):
            self._load()
            yield

    def up(self, wanted: Shape | None = None) -> None:
        """A running cluster of this shape; makes only what is missing."""
        wanted = wanted or Shape.common(1, 2)
        check_machine()
        need_packages(
            {
                "systemd-nspawn": "systemd-container",
                "ip": "iproute2",
                "ssh": "openssh-client",
                "ssh-keygen": "openssh-client",
                "openssl": "openssl",
            }
        )
        with self._locked():
            if self.exists:
                if self.shape != wanted:
                    raise LabError(f"a {self} of another shape is there already ({self.shape}); `{self._make} lab-down` first for {wanted}")
            else:
                self._destroy()
                registry.check_room(wanted.control_planes, wanted.workers, binaries.cached(wanted.version))
                with spent("labs made"):
                    self._create(wanted)
            self._start_all()

    def _start_all(self) -> None:
        self._network_up()
        for name in self.nodes:
            self.machine(name).plug_in()
        stopped = [name for name in self.nodes if self.machine(name).supervisor is None]
        for name in stopped:
            self.machine(name).start()
        parallel(*(self.machine(name).wait_ssh for name in self.nodes))
        self._write_access()
        if stopped:
            with long_step(f"waiting for {', '.join(stopped)} to be Ready"):
                self._wait_ready(stopped)
        else:
            self._wait_ready([])

    def become(self, name: str) -> None:
        """A lab of this one of SHAPES, whole and pristine, whatever was there before."""
        wanted = shape(name)
        if self.exists and self.shape == wanted:
            self.reset()
            return
        self.down()
        self.up(wanted)

    def pristine(self) -> None:
        """All nodes as they were right after `up`."""
        self.reset()

    def well(self) -> str:
        """What is wrong with the lab, in one line; nothing where all nodes are Ready and the control planes whole."""
        if not self.exists:
            return f"there is no {self}"
        stopped = [name for name in self.nodes if self.machine(name).supervisor is None]
        if stopped:
            return f"{', '.join(stopped)} is off"
        try:
            items = self._look()
            return "the API does not answer" if items is None else "; ".join(self.unready(items, {}, []))
        except (LabError, ValueError) as error:
            return str(error)

    def fingerprint(self) -> dict[str, str]:
        """The nodes' files and the cluster's objects as they are now: place -> what is there (tests/lab/fingerprint.py). LabError where a
        node or the API does not answer."""
        found: dict[str, str] = {}

        def look_at(name: str) -> None:
            found.update(fingerprint.of_node(name, self.run(name, fingerprint.NODE, timeout=30).stdout))

        def ask() -> None:
            found.update(fingerprint.of_cluster(json.loads(self.kubectl("get", fingerprint.CLUSTER, "-A", "-o", "json"))["items"]))

        parallel(ask, *(partial(look_at, name) for name in self.nodes))
        return found

    def evidence(self, folder: Path) -> None:
        """What the nodes have to say about a failure, a folder for each: console, journals, logs of containers, daytwo's own state.
        What cannot be had is named in `missing.txt`."""
        parallel(*(partial(self._evidence, name, folder / name) for name in self.nodes))

    def _evidence(self, name: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        missing = []
        for file, command in EVIDENCE.items():
            try:
                with (folder / file).open("wb") as target:
                    options = ["-o", "LogLevel=ERROR", "-o", "ConnectTimeout=5"]
                    asked = ["timeout", "30", "ssh", "-F", str(self.ssh_config), *options, name, command]
                    ended = subprocess.run(asked, stdin=subprocess.DEVNULL, stdout=target, stderr=subprocess.STDOUT, check=False)
                if ended.returncode:
                    missing.append(f"{file}: `{command}` ended with {ended.returncode}")
            except OSError as error:
                missing.append(f"{file}: {error}")
        try:
            shutil.copy(self.machine(name).folder / "console.log", folder / "console.log")
        except (OSError, LabError) as error:
            missing.append(f"console.log: {error}")
        if missing:
            (folder / "missing.txt").write_text("\n".join(missing) + "\n")

    def down(self) -> None:
        """Everything this lab made on this machine is gone, but the cache."""
        if os.geteuid() != 0:
            raise LabError("the lab needs root (try sudo make lab-down)")
        with self._locked(), spent("labs removed"):
            self._destroy()
        for path in (self.ssh_config, self.kubeconfig):
            path.unlink(missing_ok=True)
        for empty in (self.access, self.checkout / ".lab"):
            if empty.is_dir() and not any(empty.iterdir()):
                empty.rmdir()

    def _destroy(self) -> None:
        """What is found is removed, whether or not the plan still knows it."""
        if self._entry is None:
            return
        self.hang_up()
        remove(self._site, self.nodes)
        self._entry = None

    def _create(self, wanted: Shape) -> None:
        plan = {"checkout": str(self.checkout), "name": self.name, "shape": asdict(wanted), "complete": False, "nodes": {}}
        self._entry = registry.take(plan)
        with locked(STATE / "layers.lock", "another process makes the nodes' file systems; waiting for it"):
            parallel(partial(binaries.get, wanted.version), *(partial(rootfs.debian, suite) for suite in SUITES))
            layers = rootfs.layers(wanted.version, binaries.get(wanted.version), SUITES)
        nodes: dict[str, dict[str, Any]] = {}
        for index in range(1, wanted.control_planes + 1):
            nodes[f"cp{index}"] = {"number": 10 + index, "style": "kubeadm", "suite": CONTROL_PLANE_SUITE}
        for index in range(1, wanted.workers + 1):
            plain = index == 2
            suite = PLAIN_WORKER_SUITE if plain else KUBEADM_WORKER_SUITE
            nodes[f"w{index}"] = {"number": 20 + index, "style": "plain" if plain else "kubeadm", "suite": suite}
        for node in nodes.values():
            node["layers"] = [str(layer) for layer in layers.of(node["suite"], node["style"])]
        plan.update(network=Network.choose(self._site).prefix, nodes=nodes)
        self._save()
        self._network_up()
        for name in self.nodes:
            machine = self.machine(name)
            machine.make_disk()
            machine.start()
        parallel(*(self.machine(name).wait_ssh for name in self.nodes))
        self._write_access()
        with long_step("making the cluster"):
            self._make_cluster(wanted)
        with long_step("keeping the nodes as they are now, to go back to"):
            # An orderly end, so that what is kept is what a node has after a proper shutdown. Nothing needs to reach the disk: the
            # nodes' memory is this machine's page cache.
            stop = "systemctl stop kubelet containerd"
            parallel(*(partial(self.run, name, stop, check=False) for name in self.nodes))
            self.hang_up()
            parallel(*(self.machine(name).kill for name in self.nodes))
            for name in self.nodes:
                self.machine(name).freeze()
        self._plan["complete"] = True
        self._save()

    def _save(self) -> None:
        assert self._entry is not None
        registry.save(self._entry)

    def _network_up(self) -> None:
        """The network, the load balancer where there is one, and what of this machine's limits all nodes share."""
        self._network.up()
        registry.raise_limits()
        self._site.sockets.mkdir(mode=0o700, exist_ok=True)
        if self.balancer:
            self.balancer.plug_in()
            self.balancer.start()
            self.balancer.wait_open()

    def _write_access(self) -> None:
        key = rootfs.keys() / "id_ed25519"
        known = self._site.folder / "known_hosts"
        replace_text(known, "".join(f"{self.address(name)},{name} {self.machine(name).host_key}\n" for name in self.nodes))
        self.access.mkdir(parents=True, exist_ok=True)
        replace_text(self.ssh_config, ssh_config({name: self.address(name) for name in self.nodes}, key, known))
        admin = self.machine(self.control_planes[0]).disk / ADMIN.lstrip("/")
        if admin.exists():
            replace_text(self.kubeconfig, admin.read_text(), 0o600)

    # ---- the cluster

    def _make_cluster(self, wanted: Shape) -> None:
        parallel(*(partial(self._prepare_node, name) for name in self.nodes))
        first, *further = self.control_planes
        key = secrets.token_hex(32) if further else ""
        self.run(first, "umask 077; cat >/root/kubeadm.yaml", input=self.kubeadm_config(wanted, key))
        upload = " --upload-certs" if further else ""
        self.run(
            first,
            f"kubeadm init --config /root/kubeadm.yaml --skip-phases={PREFLIGHT},addon{upload} "
            ">/root/kubeadm.log 2>&1 || { tail -n 20 /root/kubeadm.log >&2; exit 1; }",
        )
        joining = self.run(first, "kubeadm token create --print-join-command 2>/dev/null").stdout.strip()
        # Control planes join one by one: etcd takes one new member at a time.
        for name in further:
            with long_step(f"{name} joins as a control plane"):
                self._join(name, f"{joining} --control-plane --certificate-key {key}")
        parallel(
            *(
                partial(self._join_plain, name) if self._plan["nodes"][name]["style"] == "plain" else partial(self._join, name, joining)
                for name in self.workers
            )
        )
        self._write_access()
        self._wait_ready([])

    def _prepare_node(self, name: str) -> None:
        number = self.nodes.index(name)
        conflist = (rootfs.FILES / "cni.conflist").read_text().replace("@SUBNET@", POD_SUBNET.format(number=number))
        self.run(name, "mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/10-lab.conflist", input=conflist)
        folders = "/opt/lab/images/*.tar" + (" /opt/lab/images/control-plane/*.tar" if name in self.control_planes else "")
        self.run(
            name,
            "until ctr version >/dev/null 2>&1; do sleep 0.2; done; "
            f"for image in {folders}; do ctr -n k8s.io images import $image >/dev/null || exit 1; done",
        )

    def kubeadm_config(self, wanted: Shape, certificate_key: str = "") -> str:
        """What `kubeadm init` is given. `certificate_key` (64 hex digits) encrypts the certificates that further control
        planes fetch; without one there are none."""
        version = wanted.version
        latest = int(version.split(".")[1]) >= 31
        api = "kubeadm.k8s.io/v1beta4" if latest else "kubeadm.k8s.io/v1beta3"
        grace = {"shutdown-watch-termination-grace-period": wanted.watch_grace} if wanted.watch_grace else {}
        arguments: Any = [{"name": name, "value": value} for name, value in grace.items()] if latest else grace
        documents: list[dict[str, Any]] = [
            {
                "apiVersion": api,
                "kind": "InitConfiguration",
                "localAPIEndpoint": {"advertiseAddress": self.address(self.control_planes[0])},
                "nodeRegistration": {"criSocket": "unix:///run/containerd/containerd.sock", "imagePullPolicy": "IfNotPresent"},
                **({"certificateKey": certificate_key} if certificate_key else {}),
            },
            {
                "apiVersion": api,
                "kind": "ClusterConfiguration",
                "kubernetesVersion": f"v{version}",
                "imageRepository": images.REPOSITORY,
                # kubeadm puts its address into every API server's certificate.
                "controlPlaneEndpoint": self.endpoint,
                **({"apiServer": {"extraArgs": arguments}} if grace else {}),
                "etcd": {"local": {"imageTag": rootfs.ETCD_TAG}},
                "networking": {"podSubnet": "10.244.0.0/16"},
            },
            kubelet_configuration(version, bool(wanted.watch_grace)),
        ]
        # JSON is YAML.
        return "\n---\n".join(json.dumps(document, indent=1) for document in documents) + "\n"

    def _join(self, name: str, command: str) -> None:
        self.run(name, f"{command} --skip-phases={PREFLIGHT} >/root/kubeadm.log 2>&1 || {{ tail -n 20 /root/kubeadm.log >&2; exit 1; }}")

    def _join_plain(self, name: str) -> None:
        """The hard way: a client certificate signed by hand, a kubeconfig and a configuration at paths of its own."""
        first = self.control_planes[0]
        pki = "/etc/kubernetes/pki"
        made = self.run(
            first,
            "set -e; cd $(mktemp -d); "
            f"openssl req -new -newkey rsa:2048 -nodes -keyout key -subj '/O=system:nodes/CN=system:node:{name}' "
            "-out csr 2>/dev/null; "
            f"openssl x509 -req -in csr -CA {pki}/ca.crt -CAkey {pki}/ca.key -CAcreateserial -days 365 -out crt 2>/dev/null; "
            f"base64 -w 0 {pki}/ca.crt; echo; base64 -w 0 crt; echo; base64 -w 0 key; echo; cat {pki}/ca.crt",
        ).stdout
        ca, certificate, key, ca_text = made.split("\n", 3)
        server = f"https://{self.endpoint}"
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": {"certificate-authority-data": ca, "server": server}}],
            "users": [{"name": name, "user": {"client-certificate-data": certificate, "client-key-data": key}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": name}}],
            "current-context": "lab",
        }
        configuration = {
            **kubelet_configuration(self.version, bool(self._plan["shape"]["watch_grace"])),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": "/etc/kubernetes-node/ca.crt"},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "staticPodPath": "/etc/kubernetes-node/static",
            "clusterDNS": ["10.96.0.10"],
            "clusterDomain": "cluster.local",
        }
        folder = "/etc/kubernetes-node"
        self.run(name, f"mkdir -p {folder}/static && cat >{folder}/ca.crt", input=ca_text)
        self.run(name, f"umask 077; cat >{folder}/kubeconfig", input=json.dumps(kubeconfig, indent=1))
        self.run(name, f"cat >{folder}/kubelet.yaml", input=_yaml(configuration))
        self.run(name, "systemctl restart kubelet")

    def _wait_ready(self, renewed: list[str]) -> None:
        """All nodes are Ready, all static pods of the control planes run, and the leases of `renewed` were renewed by the
        kubelets that run now: a node stays Ready for 40 s after its kubelet died."""
        leases: dict[str, str] = {}
        wrong = ["the API does not answer"]

        def look() -> bool:
            if (items := self._look()) is None:
                return False
            for item in items:
                if item["kind"] == "Lease" and item["metadata"]["namespace"] == "kube-node-lease":
                    leases.setdefault(item["metadata"]["name"], item["spec"]["renewTime"])
            wrong[:] = self.unready(items, {name: leases[name] for name in renewed if name in leases}, renewed)
            return not wrong

        try:
            wait_until(f"all of {', '.join(self.nodes)} to be Ready", look, 180 + 30 * len(self.nodes))
        except LabError as error:
            raise LabError(f"{error}: {'; '.join(wrong)}") from error

    def _look(self) -> list[dict[str, Any]] | None:
        """Nodes, pods and leases; None where the API does not answer, or is not ready."""
        if kubectl.answer(self.kubeconfig, ("get", "--raw", "/readyz")) is None or (told := kubectl.answer(self.kubeconfig, LOOK)) is None:
            return None
        items: list[dict[str, Any]] = json.loads(told)["items"]
        return items

    def unready(self, items: list[dict[str, Any]], old_leases: dict[str, str], renewed: list[str]) -> list[str]:
        """What is not yet as it should be, from a list of nodes, pods and leases."""
        wrong = []
        for name in self.nodes:
            node = next((item for item in items if item["kind"] == "Node" and item["metadata"]["name"] == name), None)
            conditions = {c["type"]: c["status"] for c in node["status"]["conditions"]} if node else {}
            if conditions.get("Ready") != "True":
                wrong.append(f"{name} is not Ready")
        for item in items:
            name = item["metadata"]["name"]
            if item["kind"] == "Lease" and name in renewed and old_leases.get(name) == item["spec"]["renewTime"]:
                wrong.append(f"{name} has not renewed its lease")
            if item["kind"] == "Pod" and item["metadata"]["namespace"] == "kube-system":
                states = item["status"].get("containerStatuses", [])
                if not states or not all(state["ready"] for state in states):
                    wrong.append(f"pod {name} is not ready")
        for name in self.control_planes:
            for component in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd"):
                if not any(item["kind"] == "Pod" and item["metadata"]["name"] == f"{component}-{name}" for item in items):
                    wrong.append(f"pod {component}-{name} is missing")
        return wrong


def remove(site: Site, nodes: Sequence[str] = ()) -> None:
    """Everything of the lab of this number, whether or not its state file still knows it."""
    parallel(*(Machine(name, 0, Network(site, ""), ()).kill for name in {*nodes, *site.leftovers()}))
    Network(site, "").down()
    unmount_below(site.folder)
    remove_tree(site.sockets)
    registry.release_or_warn(site)


def down_all(checkout: Path = REPOSITORY_ROOT) -> list[str]:
    """Take down every lab of a checkout, and what is left of labs that no state file knows. Returns what went."""
    gone = []
    for entry in registry.entries():
        if entry.checkout == str(checkout):
            lab = Lab(entry.name, checkout)
            lab.down()
            gone.append(str(lab))
    for site in registry.orphans(checkout):
        remove(site)
        gone.append(f"what was left of {site.group}")
    Lab("", checkout).down()  # its files of access, where the rest is gone
    return gone


def kubelet_configuration(version: str, quick: bool = False) -> dict[str, Any]:
    """What every kubelet of the lab needs: low thresholds (the disk is shared with this machine), no fear of cgroup v1.

    A `quick` one renews its lease every 3 s instead of 10 (nodeLeaseDurationSeconds / 4): that is waited for before each change of a static
    pod. And the second end of a container within ten minutes waits no longer than the first, 10 s: with each restart of the only API
    server, controller-manager and scheduler end too, and would in the end be away for minutes. (The field is read from 1.35 on; its gate,
    KubeletCrashLoopBackOffMax, is Alpha and off before.)"""
    configuration: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "systemd",
        "failSwapOn": False,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
    }
    if not unified() and int(version.split(".")[1]) >= 31:
        configuration["failCgroupV1"] = False
    if quick:
        configuration["nodeLeaseDurationSeconds"] = 12
    if quick and int(version.split(".")[1]) >= 35:
        configuration["crashLoopBackOff"] = {"maxContainerRestartPeriod": "10s"}
    return configuration


def _yaml(value: Any, indent: str = "") -> str:
    """Plain block YAML of maps, lists and scalars, as a person would have written the file."""
    lines = []
    for key, inner in value.items():
        if isinstance(inner, dict):
            lines.append(f"{indent}{key}:\n{_yaml(inner, indent + '  ')}")
        elif isinstance(inner, list):
            lines.append(f"{indent}{key}:\n" + "".join(f"{indent}- {json.dumps(item)}\n" for item in inner))
        else:
            lines.append(f"{indent}{key}: {json.dumps(inner)}\n")
    return "".join(lines)


def ssh_config(addresses: dict[str, str], key: Path, known_hosts: Path) -> str:
    """The text of .lab/ssh_config."""
    return "".join(
        f"Host {name}\n"
        f"  HostName {address}\n"
        "  User root\n"
        f"  IdentityFile {key}\n"
        "  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {known_hosts}\n"
        "  StrictHostKeyChecking yes\n"
        "  ConnectTimeout 10\n"
        for name, address in addresses.items()
    )


__all__ = ["SHAPES", "Lab", "Shape", "check_machine", "down_all", "kubelet_configuration", "ssh_config"]
