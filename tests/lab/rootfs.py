"""What a node's disk is made of: a Debian root file system, and thin layers over it."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.lab import images
from tests.lab.tools import CACHE, STATE, LabError, long_step, need_packages, remove_tree, run

FILES = Path(__file__).parent / "files"
# A machine of two cores runs forty programs in Go. Each looks for work on all cores when it has none, and collects its garbage more often
# than memory asks for: a tenth of the CPU that a change costs.
GO = ("GOMAXPROCS=1", "GOGC=200")
# fmt: off
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "libpam-systemd", "openssh-server", "sudo", "containerd", "runc",
    "containernetworking-plugins", "busybox-static", "iproute2", "iptables", "ethtool", "conntrack", "socat", "kmod",
    "procps", "iputils-ping", "ca-certificates", "openssl", "curl", "util-linux", "mount", "less",
    "e2fsprogs", "python3-minimal", "strace", "inotify-tools", "acl",
)
# fmt: on
# OpenSSH's own first choice takes ten times the processor time of a login, and a test logs in a hundred times.
KEY_EXCHANGE = "curve25519-sha256,curve25519-sha256@libssh.org"
# What an ordinary node has no use for and a container image or a test never reads.
LEFT_OUT = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/doc/*", "/usr/share/info/*")


def debian(suite: str) -> Path:
    """The unpacked root file system of a Debian release: made once, kept in the cache as a tar."""
    cached = archive(suite, PACKAGES)
    root = base(suite)
    if not (root / ".complete").exists():
        remove_tree(root)
        root.mkdir(parents=True)
        with long_step(f"unpacking {suite}"):
            run("tar", "--extract", "--numeric-owner", "--xattrs", "--file", cached, "--directory", root)
        (root / ".complete").touch()
    return root


def base(suite: str) -> Path:
    """Where `debian` unpacks."""
    return STATE / "base" / _cached(suite, PACKAGES).stem


def _cached(suite: str, packages: tuple[str, ...]) -> Path:
    key = hashlib.sha256(" ".join([suite, *packages, *LEFT_OUT]).encode()).hexdigest()[:12]
    return CACHE / "rootfs" / f"{suite}-{key}.tar"


def archive(suite: str, packages: tuple[str, ...]) -> Path:
    """A tar in the cache: the root file system of a Debian release with these packages, made once."""
    cached = _cached(suite, packages)
    if not cached.exists():
        need_packages({"mmdebstrap": "mmdebstrap"})
        cached.parent.mkdir(parents=True, exist_ok=True)
        # mmdebstrap tells the format by the ending.
        unfinished = cached.with_name(f"unfinished-{cached.name}")
        with long_step(f"making a Debian {suite} root file system (about a minute, once)"):
            run(
                "mmdebstrap",
                "--variant=minbase",
                f"--include={','.join(packages)}",
                '--aptopt=APT::Install-Recommends "false"',
                *(f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT),
                suite,
                unfinished,
            )
        unfinished.rename(cached)
    return cached


def keys() -> Path:
    """The folder with the SSH key of this machine's labs, made when missing."""
    folder = STATE / "keys"
    if not (folder / "id_ed25519").exists():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "daytwo lab", "-f", folder / "id_ed25519")
    return folder


@dataclass(frozen=True)
class Layers:
    """The read-only folders that the disks of all labs of one Kubernetes version lie over."""

    folder: Path

    def of(self, suite: str, style: str) -> list[Path]:
        """For a node of this Debian suite and style (`kubeadm`, `plain`), the uppermost first."""
        own = ("common", f"user-{suite}", style, "images")
        return [*(self.folder / name for name in own), base(suite)]


def layers(version: str, binaries: Path, suites: tuple[str, ...]) -> Layers:
    """Make what is missing of the layers; one caller at a time. Another state of this file makes other layers, so that checkouts with
    different ones do not meet."""
    made_of = [Path(__file__), Path(images.__file__), *sorted(path for path in FILES.rglob("*") if path.is_file())]
    content = hashlib.sha256(f"{version} {binaries} {' '.join(str(base(suite)) for suite in suites)}".encode())
    for path in made_of:
        content.update(path.read_bytes())
    found = STATE / "layers" / content.hexdigest()[:12]
    if not (found / ".complete").exists():
        remove_tree(found)
        common_layer(found / "common")
        for suite in suites:
            user_layer(found / f"user-{suite}", base(suite))
        kubeadm_layer(found / "kubeadm", binaries)
        plain_layer(found / "plain", binaries)
        image_layer(found / "images", binaries, base(suites[0]), version)
        (found / ".complete").touch()
    return Layers(found)


def common_layer(layer: Path) -> None:
    """What all nodes have beside Debian: the lab's early unit, containerd's configuration, users and the SSH key."""
    _fresh(layer)
    write(layer / "etc/containerd/config.toml", (FILES / "containerd.toml").read_text())
    write(layer / "etc/systemd/system/lab-early.service", (FILES / "lab-early.service").read_text())
    write(layer / "opt/lab/early.sh", (FILES / "early.sh").read_text(), 0o755)
    link(layer / "etc/systemd/system/sysinit.target.wants/lab-early.service", "/etc/systemd/system/lab-early.service")
    # A kubelet that starts before containerd answers ends, and systemd starts it again only 10 s later.
    write(layer / "etc/systemd/system.conf.d/lab.conf", f"[Manager]\nDefaultEnvironment={' '.join(GO)}\n")
    write(layer / "etc/systemd/system/containerd.service.d/lab.conf", "[Unit]\nBefore=kubelet.service\n")
    # A container has no clock, console or swap of its own to manage.
    for unit in ("systemd-timesyncd.service", "e2scrub_reap.service", "systemd-resolved.service", "console-getty.service"):
        link(layer / f"etc/systemd/system/{unit}", "/dev/null")
    # VERBOSE tells of each command a session runs: tests count them.
    sshd = ("LogLevel VERBOSE", "UseDNS no", "MaxSessions 50", "MaxStartups 100", f"KexAlgorithms {KEY_EXCHANGE}")
    write(layer / "etc/ssh/sshd_config.d/lab.conf", "\n".join(sshd) + "\n")
    # Else each first login starts root's own systemd, and each last logout stops it.
    write(layer / "var/lib/systemd/linger/root", "")
    public = (keys() / "id_ed25519.pub").read_text()
    write(layer / "root/.ssh/authorized_keys", public, 0o600)
    (layer / "root/.ssh").chmod(0o700)
    (layer / "root").chmod(0o700)
    write(layer / "etc/sudoers.d/ops", "ops ALL=(ALL) ALL\n", 0o440)
    write(layer / "home/ops/.ssh/authorized_keys", public, 0o600)
    for folder in (layer / "home/ops", layer / "home/ops/.ssh", layer / "home/ops/.ssh/authorized_keys"):
        os.chown(folder, 1000, 1000)
    (layer / "home/ops/.ssh").chmod(0o700)
    write(layer / "etc/tmpfiles.d/lab.conf", "d /run/lab 0755 root root -\n")


def user_layer(layer: Path, base: Path) -> None:
    """The user `ops` (password `ops`, sudo with password), which needs the suite's own passwd files."""
    _fresh(layer)
    hashed = run("openssl", "passwd", "-6", "-salt", "daytwolab", "ops").stdout.strip()
    for name, line in (
        ("passwd", "ops:x:1000:1000::/home/ops:/bin/bash"),
        ("group", "ops:x:1000:"),
        ("shadow", f"ops:{hashed}:20000:0:99999:7:::"),
    ):
        original = base / "etc" / name
        write(layer / "etc" / name, original.read_text() + line + "\n", original.stat().st_mode & 0o777)
        os.chown(layer / "etc" / name, original.stat().st_uid, original.stat().st_gid)


def kubeadm_layer(layer: Path, binaries: Path) -> None:
    """kubeadm's own packaging: binaries in /usr/bin, its unit and its drop-in in /usr/lib/systemd/system."""
    _fresh(layer)
    for name in ("kubeadm", "kubelet", "kubectl"):
        copy(binaries / name, layer / "usr/bin" / name)
    units = layer / "usr/lib/systemd/system"
    write(units / "kubelet.service", (FILES / "kubeadm-kubelet.service").read_text())
    write(units / "kubelet.service.d/10-kubeadm.conf", (FILES / "10-kubeadm.conf").read_text())
    link(layer / "etc/systemd/system/multi-user.target.wants/kubelet.service", "/usr/lib/systemd/system/kubelet.service")


def plain_layer(layer: Path, binaries: Path) -> None:
    """A worker that somebody made by hand: binary in /usr/local/bin, a unit of its own, nothing of kubeadm."""
    _fresh(layer)
    copy(binaries / "kubelet", layer / "usr/local/bin/kubelet")
    write(layer / "etc/systemd/system/kubelet.service", (FILES / "plain-kubelet.service").read_text())
    link(layer / "etc/systemd/system/multi-user.target.wants/kubelet.service", "/etc/systemd/system/kubelet.service")


def image_layer(layer: Path, binaries: Path, base: Path, version: str) -> None:
    """Image archives in /opt/lab/images (all nodes) and /opt/lab/images/control-plane."""
    _fresh(layer)
    folder = layer / "opt/lab/images"
    folder.mkdir(parents=True)
    busybox = base / "bin/busybox"
    if not busybox.exists():
        raise LabError(f"{busybox} is missing: the root file system was made without busybox-static")
    (folder / "pause.tar").write_bytes(images.busybox_tar(f"{images.REPOSITORY}/pause:1", busybox))
    (folder / "app.tar").write_bytes(images.busybox_tar(f"{images.REPOSITORY}/app:1", busybox))
    control_plane = folder / "control-plane"
    control_plane.mkdir()
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        image = images.component_tar(f"{images.REPOSITORY}/{name}:v{version}", binaries / name, GO)
        (control_plane / f"{name}.tar").write_bytes(image)
    # A lab's node is killed, and never this machine: what etcd has written outlasts it, synced or not.
    image = images.component_tar(f"{images.REPOSITORY}/etcd:{ETCD_TAG}", binaries / "etcd", [*GO, "ETCD_UNSAFE_NO_FSYNC=true"])
    (control_plane / "etcd.tar").write_bytes(image)


# kubeadm only wants a tag; which etcd is in the image is told by the binary.
ETCD_TAG = "lab"


def _fresh(layer: Path) -> None:
    layer.mkdir(parents=True)
    layer.chmod(0o755)


def write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755)
