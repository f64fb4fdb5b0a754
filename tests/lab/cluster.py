"""The cluster on the lab's nodes, and the verbs that people and tests use."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.lab import binaries, images, rootfs
from tests.lab.machine import API_PORT, Balancer, Machine, Network, leftovers, supervisors, unified, unmount_below
from tests.lab.tools import (
    CACHE,
    STATE,
    LabError,
    long_step,
    need_packages,
    parallel,
    remove_tree,
    replace_text,
    run,
    say,
    wait_until,
)

REPOSITORY_ROOT = Path(__file__).resolve().parents[2]
FREE_GIB = 8
CONTROL_PLANE_SUITE = "bookworm"  # systemd 252
KUBEADM_WORKER_SUITE = "bookworm"
PLAIN_WORKER_SUITE = "trixie"  # systemd 257
POD_SUBNET = "10.244.{number}.0/24"
ADMIN = "/etc/kubernetes/admin.conf"
# A shutdown waits 90 s for an API server that has lost its etcd (systemd's DefaultTimeoutStopSec).
OFF_TIMEOUT = 180
# kubeadm's checks fail on a node that is no whole machine; its pull of images from nowhere alone takes 50 s.
PREFLIGHT = "preflight"


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
    for folder in (STATE, CACHE):
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free / 2**30
        if free < FREE_GIB:
            raise LabError(f"{folder} has {free:.1f} GiB free, and the lab needs {FREE_GIB}")


class Lab:
    """The one lab of this machine. `nodes` are names in the order control planes, then workers."""

    def __init__(self) -> None:
        self._plan: dict[str, Any] = {}
        self._load()

    # ---- what there is

    def _load(self) -> None:
        try:
            self._plan = json.loads((STATE / "lab.json").read_text())
        except FileNotFoundError:
            self._plan = {}

    @property
    def exists(self) -> bool:
        return bool(self._plan.get("complete"))

    @property
    def version(self) -> str:
        return str(self._plan["version"])

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
        return Machine(name, node["number"], Network(self._plan["network"]), tuple(Path(path) for path in node["layers"]))

    def address(self, name: str) -> str:
        return self.machine(name).address

    @property
    def balancer(self) -> Balancer | None:
        """The load balancer before the API servers; None where there is one control plane, which needs none."""
        if len(self.control_planes) < 2:
            return None
        backends = tuple(self.address(name) for name in self.control_planes)
        return Balancer("lb", 5, Network(self._plan["network"]), (), backends)

    @property
    def endpoint(self) -> str:
        """ADDRESS:PORT of the API as the cluster's kubeconfigs name it."""
        return f"{(self.balancer or self.machine(self.control_planes[0])).address}:{API_PORT}"

    @property
    def ssh_config(self) -> Path:
        return REPOSITORY_ROOT / ".lab/ssh_config"

    @property
    def kubeconfig(self) -> Path:
        return REPOSITORY_ROOT / ".lab/kubeconfig"

    # ---- what tests do with nodes

    def run(
        self, node: str, command: str, *, input: str | None = None, check: bool = True, user: str = "root", timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command on a node over ssh; LabError when it fails, unless check is False."""
        return run(
            *("ssh", "-F", self.ssh_config, "-o", "LogLevel=ERROR", "-l", user, node, command),
            input=input if input is not None else "",
            check=check,
            timeout=timeout,
        )

    def kubectl(self, *arguments: str, input: str | None = None, check: bool = True) -> str:
        """kubectl with the lab's admin rights, run on the first control-plane node."""
        words = shlex.join(["kubectl", f"--kubeconfig={ADMIN}", *arguments])
        return self.run(self.control_planes[0], words, input=input, check=check).stdout

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
        self.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")

    def start(self, name: str) -> None:
        self._network_up()
        self.machine(name).start()
        self.machine(name).wait_ssh()

    def kill(self, name: str) -> None:
        self.machine(name).kill()

    def stop(self, name: str) -> None:
        """Shut a node down in order; returns when it is off."""
        machine = self.machine(name)
        if machine.supervisor is not None:
            self.run(name, "systemctl poweroff", check=False)
            wait_until(f"{name} to power off (see {machine.folder}/console.log)", lambda: machine.supervisor is None, OFF_TIMEOUT)
        machine.kill()  # what is left of it: its cable, its disk's mount

    def reboot(self, name: str) -> None:
        """Reboot a node in order; returns when it answers ssh under a new boot id."""
        before = self.boot_id(name)
        if before is None:
            raise LabError(f"{name} does not answer; `start {name}` boots a node that is off")
        self.run(name, "systemctl reboot", check=False)
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
            with long_step(f"putting {', '.join(chosen)} back to pristine"):
                self._reset(chosen)

    def _resettable(self, names: Sequence[str]) -> list[str]:
        if not self.exists:
            raise LabError("there is no lab; `make lab` makes one")
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
        parallel(*(partial(self._reset_disk, name) for name in chosen))
        self._network_up()
        # Workers would only wait for the control plane; it is started first, its boot takes longest.
        for name in sorted(chosen, key=self.nodes.index):
            self.machine(name).start()
        parallel(*(self.machine(name).wait_ssh for name in chosen))
        self._wait_ready(chosen)

    def _reset_disk(self, name: str) -> None:
        machine = self.machine(name)
        machine.kill()
        machine.reset()

    # ---- up and down

    @contextmanager
    def _locked(self) -> Iterator[None]:
        STATE.mkdir(parents=True, exist_ok=True)
        with (STATE / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                say("another process works on the lab; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            self._load()
            foreign = sorted({folder.parent.parent for folder in supervisors().values() if folder.parent != STATE / "nodes"})
            if foreign:
                raise LabError(f"a machine has room for one lab, and one runs from {foreign[0]}; take it down there first")
            yield

    def up(self, control_planes: int = 1, workers: int = 2) -> None:
        """A running cluster of this shape; makes only what is missing."""
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
            version = binaries.version()
            shape = {"version": version, "control_planes": control_planes, "workers": workers}
            if self.exists:
                if {key: self._plan[key] for key in shape} != shape:
                    raise LabError(
                        f"a lab with Kubernetes {self.version}, {self._plan['control_planes']} control planes and "
                        f"{self._plan['workers']} workers is there already; `make lab-down` first for {shape}"
                    )
            else:
                self._destroy()
                self._create(shape)
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

    def down(self) -> None:
        """Everything the lab made on this machine is gone, but the cache."""
        if os.geteuid() != 0:
            raise LabError("the lab needs root (try sudo make lab-down)")
        with self._locked():
            self._destroy()
        for path in (self.ssh_config, self.kubeconfig):
            path.unlink(missing_ok=True)
        if self.ssh_config.parent.is_dir() and not any(self.ssh_config.parent.iterdir()):
            self.ssh_config.parent.rmdir()
        remove_tree(STATE)

    def _destroy(self) -> None:
        """What is found is removed, whether or not the plan still knows it."""
        parallel(*(Machine(name, 0, Network(""), ()).kill for name in {*self.nodes, *leftovers()}))
        Network.down()
        unmount_below(STATE)
        instances = STATE / "inotify"
        if instances.exists():
            Path("/proc/sys/fs/inotify/max_user_instances").write_text(instances.read_text())
        remove_tree(STATE / "nodes", STATE / "layers", STATE / "base")
        for name in ("lab.json", "inotify"):
            (STATE / name).unlink(missing_ok=True)
        self._plan = {}

    def _create(self, shape: dict[str, Any]) -> None:
        version = shape["version"]
        bases: dict[str, Path] = {}

        def make_base(suite: str) -> None:
            bases[suite] = rootfs.debian(suite)

        parallel(lambda: binaries.get(version), *(partial(make_base, suite) for suite in ("bookworm", "trixie")))
        folder = binaries.get(version)
        common = rootfs.common_layer()
        image_layer = rootfs.image_layer(folder, bases["bookworm"], version)
        styles = {"kubeadm": rootfs.kubeadm_layer(folder), "plain": rootfs.plain_layer(folder)}
        users = {suite: rootfs.user_layer(base, suite) for suite, base in bases.items()}
        network = Network.choose()
        nodes: dict[str, dict[str, Any]] = {}
        for index in range(1, shape["control_planes"] + 1):
            nodes[f"cp{index}"] = {"number": 10 + index, "style": "kubeadm", "suite": CONTROL_PLANE_SUITE}
        for index in range(1, shape["workers"] + 1):
            plain = index == 2
            suite = PLAIN_WORKER_SUITE if plain else KUBEADM_WORKER_SUITE
            nodes[f"w{index}"] = {"number": 20 + index, "style": "plain" if plain else "kubeadm", "suite": suite}
        for node in nodes.values():
            layers = (common, users[node["suite"]], styles[node["style"]], image_layer, bases[node["suite"]])
            node["layers"] = [str(layer) for layer in layers]
        self._plan = {**shape, "network": network.prefix, "nodes": nodes, "complete": False}
        self._save()
        self._network_up()
        for name in self.nodes:
            machine = self.machine(name)
            machine.make_disk()
            machine.start()
        parallel(*(self.machine(name).wait_ssh for name in self.nodes))
        self._write_access()
        with long_step("making the cluster"):
            self._make_cluster(version)
        with long_step("keeping the nodes as they are now, to go back to"):
            # An orderly end, so that what is kept is what a node has after a proper shutdown.
            stop = "systemctl stop kubelet containerd; sync"
            parallel(*(partial(self.run, name, stop, check=False) for name in self.nodes))
            parallel(*(self.machine(name).kill for name in self.nodes))
            for name in self.nodes:
                self.machine(name).freeze()
        self._plan["complete"] = True
        self._save()

    def _save(self) -> None:
        STATE.mkdir(parents=True, exist_ok=True)
        replace_text(STATE / "lab.json", json.dumps(self._plan, indent=1) + "\n")

    def _network_up(self) -> None:
        """The network, the load balancer where there is one, and what of this machine's limits all nodes share."""
        Network(self._plan["network"]).up()
        # Each systemd and kubelet holds inotify instances, and root's count is shared by all nodes.
        limit = Path("/proc/sys/fs/inotify/max_user_instances")
        if int(limit.read_text()) < 1024:
            if not (STATE / "inotify").exists():
                (STATE / "inotify").write_text(limit.read_text())
            limit.write_text("1024")
        if self.balancer:
            self.balancer.plug_in()
            self.balancer.start()
            self.balancer.wait_open()

    def _write_access(self) -> None:
        key = rootfs.keys() / "id_ed25519"
        known = rootfs.keys() / "known_hosts"
        replace_text(known, "".join(f"{self.address(name)},{name} {self.machine(name).host_key}\n" for name in self.nodes))
        self.ssh_config.parent.mkdir(exist_ok=True)
        replace_text(self.ssh_config, ssh_config({name: self.address(name) for name in self.nodes}, key, known))
        admin = self.machine(self.control_planes[0]).disk / ADMIN.lstrip("/")
        if admin.exists():
            replace_text(self.kubeconfig, admin.read_text(), 0o600)

    # ---- the cluster

    def _make_cluster(self, version: str) -> None:
        parallel(*(partial(self._prepare_node, name) for name in self.nodes))
        first, *further = self.control_planes
        key = secrets.token_hex(32) if further else ""
        self.run(first, "umask 077; cat >/root/kubeadm.yaml", input=self.kubeadm_config(version, key))
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
        self._wait_ready(self.nodes)

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

    def kubeadm_config(self, version: str, certificate_key: str = "") -> str:
        """What `kubeadm init` is given. `certificate_key` (64 hex digits) encrypts the certificates that further control
        planes fetch; without one there are none."""
        api = "kubeadm.k8s.io/v1beta4" if int(version.split(".")[1]) >= 31 else "kubeadm.k8s.io/v1beta3"
        documents: list[dict[str, Any]] = [
            {
                "apiVersion": api,
                "kind": "InitConfiguration",
                "localAPIEndpoint": {"advertiseAddress": self.address(self.control_planes[0])},
                "nodeRegistration": {
                    "criSocket": "unix:///run/containerd/containerd.sock",
                    "imagePullPolicy": "IfNotPresent",
                },
                **({"certificateKey": certificate_key} if certificate_key else {}),
            },
            {
                "apiVersion": api,
                "kind": "ClusterConfiguration",
                "kubernetesVersion": f"v{version}",
                "imageRepository": images.REPOSITORY,
                # kubeadm puts its address into every API server's certificate.
                "controlPlaneEndpoint": self.endpoint,
                "etcd": {"local": {"imageTag": rootfs.ETCD_TAG}},
                "networking": {"podSubnet": "10.244.0.0/16"},
            },
            kubelet_configuration(version),
        ]
        # JSON is YAML.
        return "\n---\n".join(json.dumps(document, indent=1) for document in documents) + "\n"

    def _join(self, name: str, command: str) -> None:
        self.run(
            name,
            f"{command} --skip-phases={PREFLIGHT} >/root/kubeadm.log 2>&1 || {{ tail -n 20 /root/kubeadm.log >&2; exit 1; }}",
        )

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
            **kubelet_configuration(self.version),
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
        first = self.control_planes[0]
        wrong = ["the API does not answer"]

        def look() -> bool:
            told = self.run(
                first,
                f"export KUBECONFIG={ADMIN}; "
                "kubectl get --raw /readyz >/dev/null && kubectl get nodes,pods,leases --all-namespaces -o json",
                check=False,
            )
            if told.returncode != 0:
                return False
            items = json.loads(told.stdout)["items"]
            for item in items:
                if item["kind"] == "Lease" and item["metadata"]["namespace"] == "kube-node-lease":
                    leases.setdefault(item["metadata"]["name"], item["spec"]["renewTime"])
            wrong[:] = self.unready(items, {name: leases[name] for name in renewed if name in leases}, renewed)
            return not wrong

        try:
            wait_until(f"all of {', '.join(self.nodes)} to be Ready", look, 180 + 30 * len(self.nodes))
        except LabError as error:
            raise LabError(f"{error}: {'; '.join(wrong)}") from error

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


def kubelet_configuration(version: str) -> dict[str, Any]:
    """What every kubelet of the lab needs: low thresholds (the disk is shared with this machine), no fear of cgroup v1."""
    configuration: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "systemd",
        "failSwapOn": False,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
    }
    if not unified() and int(version.split(".")[1]) >= 31:
        configuration["failCgroupV1"] = False
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


__all__ = ["Lab", "check_machine", "kubelet_configuration", "ssh_config"]
