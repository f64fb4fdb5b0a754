"""What a node's disk is made of: a Debian root file system, and thin layers over it."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from tests.lab import images
from tests.lab.tools import CACHE, STATE, LabError, long_step, need_packages, remove_tree, run

FILES = Path(__file__).parent / "files"
# fmt: off
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "libpam-systemd", "openssh-server", "sudo", "containerd", "runc",
    "containernetworking-plugins", "busybox-static", "iproute2", "iptables", "ethtool", "conntrack", "socat", "kmod",
    "procps", "iputils-ping", "ca-certificates", "openssl", "curl", "util-linux", "mount", "less",
    "e2fsprogs", "python3-minimal", "strace", "inotify-tools", "acl",
)
# fmt: on
# What an ordinary node has no use for and a container image or a test never reads.
LEFT_OUT = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/doc/*", "/usr/share/info/*")


def debian(suite: str) -> Path:
    """The unpacked root file system of a Debian release: made once, kept in the cache as a tar."""
    cached = archive(suite, PACKAGES)
    root = STATE / "base" / cached.stem
    if not (root / ".complete").exists():
        remove_tree(root)
        root.mkdir(parents=True)
        with long_step(f"unpacking {suite}"):
            run("tar", "--extract", "--numeric-owner", "--xattrs", "--file", cached, "--directory", root)
        (root / ".complete").touch()
    return root


def archive(suite: str, packages: tuple[str, ...]) -> Path:
    """A tar in the cache: the root file system of a Debian release with these packages, made once."""
    key = hashlib.sha256(" ".join([suite, *packages, *LEFT_OUT]).encode()).hexdigest()[:12]
    cached = CACHE / "rootfs" / f"{suite}-{key}.tar"
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
    """The folder with the lab's SSH key, made when missing."""
    folder = STATE / "keys"
    if not (folder / "id_ed25519").exists():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "daytwo lab", "-f", folder / "id_ed25519")
    return folder


def common_layer() -> Path:
    """What all nodes have beside Debian: the lab's early unit, containerd's configuration, users and the SSH key."""
    layer = _fresh("common")
    write(layer / "etc/containerd/config.toml", (FILES / "containerd.toml").read_text())
    write(layer / "etc/systemd/system/lab-early.service", (FILES / "lab-early.service").read_text())
    write(layer / "opt/lab/early.sh", (FILES / "early.sh").read_text(), 0o755)
    link(layer / "etc/systemd/system/sysinit.target.wants/lab-early.service", "/etc/systemd/system/lab-early.service")
    # A container has no clock, console or swap of its own to manage.
    for unit in ("systemd-timesyncd.service", "e2scrub_reap.service", "systemd-resolved.service", "console-getty.service"):
        link(layer / f"etc/systemd/system/{unit}", "/dev/null")
    # VERBOSE tells of each command a session runs: tests count them.
    write(layer / "etc/ssh/sshd_config.d/lab.conf", "LogLevel VERBOSE\nUseDNS no\nMaxSessions 50\nMaxStartups 100\n")
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
    return layer


def user_layer(base: Path, suite: str) -> Path:
    """The user `ops` (password `ops`, sudo with password), which needs the suite's own passwd files."""
    layer = _fresh(f"user-{suite}")
    hashed = run("openssl", "passwd", "-6", "-salt", "daytwolab", "ops").stdout.strip()
    for name, line in (
        ("passwd", "ops:x:1000:1000::/home/ops:/bin/bash"),
        ("group", "ops:x:1000:"),
        ("shadow", f"ops:{hashed}:20000:0:99999:7:::"),
    ):
        original = base / "etc" / name
        write(layer / "etc" / name, original.read_text() + line + "\n", original.stat().st_mode & 0o777)
        os.chown(layer / "etc" / name, original.stat().st_uid, original.stat().st_gid)
    return layer


def kubeadm_layer(binaries: Path) -> Path:
    """kubeadm's own packaging: binaries in /usr/bin, its unit and its drop-in in /usr/lib/systemd/system."""
    layer = _fresh("kubeadm")
    for name in ("kubeadm", "kubelet", "kubectl"):
        copy(binaries / name, layer / "usr/bin" / name)
    units = layer / "usr/lib/systemd/system"
    write(units / "kubelet.service", (FILES / "kubeadm-kubelet.service").read_text())
    write(units / "kubelet.service.d/10-kubeadm.conf", (FILES / "10-kubeadm.conf").read_text())
    link(layer / "etc/systemd/system/multi-user.target.wants/kubelet.service", "/usr/lib/systemd/system/kubelet.service")
    return layer


def plain_layer(binaries: Path) -> Path:
    """A worker that somebody made by hand: binary in /usr/local/bin, a unit of its own, nothing of kubeadm."""
    layer = _fresh("plain")
    copy(binaries / "kubelet", layer / "usr/local/bin/kubelet")
    write(layer / "etc/systemd/system/kubelet.service", (FILES / "plain-kubelet.service").read_text())
    link(layer / "etc/systemd/system/multi-user.target.wants/kubelet.service", "/etc/systemd/system/kubelet.service")
    return layer


def image_layer(binaries: Path, base: Path, version: str) -> Path:
    """Image archives in /opt/lab/images (all nodes) and /opt/lab/images/control-plane."""
    layer = _fresh("images")
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
        image = images.component_tar(f"{images.REPOSITORY}/{name}:v{version}", binaries / name)
        (control_plane / f"{name}.tar").write_bytes(image)
    image = images.component_tar(f"{images.REPOSITORY}/etcd:{ETCD_TAG}", binaries / "etcd")
    (control_plane / "etcd.tar").write_bytes(image)
    return layer


# kubeadm only wants a tag; which etcd is in the image is told by the binary.
ETCD_TAG = "lab"


def _fresh(name: str) -> Path:
    layer = STATE / "layers" / name
    remove_tree(layer)
    layer.mkdir(parents=True)
    layer.chmod(0o755)
    return layer


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
