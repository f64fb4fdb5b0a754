"""A Vagrant box made on the spot: Debian with its own kernel, and the lab's Kubernetes baked in. For where there is no box server."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import shutil
from pathlib import Path

from tests.lab import binaries, images, rootfs
from tests.lab.tools import LabError, long_step, need_packages, remove_tree, run

HERE = Path(__file__).parent
FILES = HERE / "files"
STATE = Path(os.environ.get("DAYTWO_VAGRANT_DIR", "/var/tmp/daytwo-vagrant"))
SUITE = "bookworm"
DISK_GIB = 10
# The cloud kernel is the smallest that has everything a node needs; the box is booted from its own kernel without a boot loader.
KERNELS = {"amd64": "linux-image-cloud-amd64", "arm64": "linux-image-cloud-arm64"}
MORE = ("initramfs-tools", "zstd", "udev", "netbase")
# Only what finds and mounts the disk: unpacking is what a boot under emulation would spend its time with.
INITRD_MODULES = "virtio_pci\nvirtio_blk\next4\ncrc32c\n"
OPS_UID = 1000


def packages() -> tuple[str, ...]:
    return (*rootfs.PACKAGES, *MORE, KERNELS[binaries.architecture()])


def name(version: str) -> str:
    """The box's name: another one as soon as anything in it would be another."""
    making = [inspect.getsource(made) for made in (bake, preload, _user, boot_files)]
    parts = [version, SUITE, str(DISK_GIB), INITRD_MODULES, PRELOAD, SSHD, NETWORK, (FILES / "containerd.toml").read_text(), public_key()]
    parts += [*packages(), *QUIET, *making]
    return f"daytwo-{version}-{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:10]}"


def private_key() -> Path:
    """The SSH key of these machines, made when missing."""
    key = STATE / "keys" / "id_ed25519"
    if not key.exists():
        key.parent.mkdir(parents=True, exist_ok=True)
        key.parent.chmod(0o700)
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "daytwo vagrant", "-f", key)
    return key


def public_key() -> str:
    return private_key().with_suffix(".pub").read_text()


def kernel(box: str) -> tuple[Path, Path]:
    """The kernel and the initial file system of a box."""
    return STATE / "boot" / f"{box}.vmlinuz", STATE / "boot" / f"{box}.initrd"


def make(version: str) -> str:
    """The box is known to Vagrant and its kernel lies in STATE; its name."""
    box = name(version)
    if box in run("vagrant", "box", "list").stdout and all(path.exists() for path in kernel(box)):
        return box
    need_packages({"qemu-img": "qemu-utils", "mkfs.ext4": "e2fsprogs"})
    scratch = STATE / "scratch"
    remove_tree(scratch)
    root = scratch / "root"
    root.mkdir(parents=True)
    try:
        folder = binaries.get(version)
        archive = rootfs.archive(SUITE, packages())
        with long_step("unpacking the box's root file system"):
            run("tar", "--extract", "--numeric-owner", "--xattrs", "--file", archive, "--directory", root)
        with long_step("baking Kubernetes in"):
            bake(root, folder, version)
            preload(root, folder, version)
            boot_files(root, box)
        raw, disk, packed = scratch / "box.raw", scratch / "box.img", scratch / "box.tar"
        with long_step("making the box's disk"):
            with raw.open("wb") as file:
                file.truncate(DISK_GIB * 2**30)
            run("mkfs.ext4", "-q", "-F", "-L", "root", "-d", root, raw)
            run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, disk)
            raw.unlink()
            remove_tree(root)
        (scratch / "metadata.json").write_text(json.dumps({"provider": "libvirt", "format": "qcow2", "virtual_size": DISK_GIB}))
        with long_step("giving the box to Vagrant"):
            run("tar", "--create", "--sparse", "--file", packed, "--directory", scratch, "metadata.json", "box.img")
            run("vagrant", "box", "add", "--force", "--name", box, packed)
    finally:
        remove_tree(scratch)
    return box


def bake(root: Path, binaries_folder: Path, version: str) -> None:
    """Everything that provision.sh would else install, in the unpacked root file system."""
    for tool in ("kubeadm", "kubelet", "kubectl"):
        rootfs.copy(binaries_folder / tool, root / "usr/bin" / tool)
    units = root / "usr/lib/systemd/system"
    rootfs.write(units / "kubelet.service", (rootfs.FILES / "kubeadm-kubelet.service").read_text())
    rootfs.write(units / "kubelet.service.d/10-kubeadm.conf", (rootfs.FILES / "10-kubeadm.conf").read_text())
    # Not the kubelet, which would start again and again until there is a cluster: provision.sh enables it.
    rootfs.link(root / "etc/systemd/system/multi-user.target.wants/systemd-networkd.service", f"{UNITS}/systemd-networkd.service")
    rootfs.write(root / "etc/containerd/config.toml", (FILES / "containerd.toml").read_text())
    rootfs.write(root / "etc/daytwo-baked", f"{version}\n")
    rootfs.write(root / "etc/systemd/network/40-eth0.network", "[Match]\nName=eth0\n[Network]\nDHCP=ipv4\n")
    rootfs.write(root / "etc/modules-load.d/kubernetes.conf", "overlay\nbr_netfilter\n")
    rootfs.write(root / "etc/sysctl.d/90-kubernetes.conf", "net.ipv4.ip_forward = 1\nnet.bridge.bridge-nf-call-iptables = 1\n")
    rootfs.write(root / "etc/fstab", "/dev/vda / ext4 rw,relatime 0 1\n")
    rootfs.write(root / "etc/hostname", "box\n")
    known = "".join(f"{NETWORK}.{number} {host}\n" for host, number in NUMBERS.items())
    rootfs.write(root / "etc/hosts", f"127.0.0.1 localhost\n{known}")
    # systemd gives a device or a service 90 s, in which an emulated processor may not have come to it.
    rootfs.write(root / "etc/systemd/system.conf.d/slow.conf", "[Manager]\nDefaultTimeoutStartSec=900\nDefaultDeviceTimeoutSec=900\n")
    # They would only compete with what is tested; nobody logs in at the console.
    for unit in QUIET:
        rootfs.link(root / "etc/systemd/system" / unit, "/dev/null")
    for host, number in NUMBERS.items():
        own = f"[Match]\nName=eth1\nHost={host}\n[Network]\nAddress={NETWORK}.{number}/24\n"
        rootfs.write(root / f"etc/systemd/network/50-{host}.network", own)
    _user(root)


def preload(root: Path, binaries_folder: Path, version: str) -> None:
    """The images, in containerd's store: unpacking them is minutes of an emulated processor's work, and seconds of this one's."""
    busybox = root / "bin/busybox"
    archives = {
        "pause": images.busybox_tar(f"{images.REPOSITORY}/pause:1", busybox),
        "app": images.busybox_tar(f"{images.REPOSITORY}/app:1", busybox),
    }
    for tool, tag in [*((tool, f"v{version}") for tool in CONTROL_PLANE), ("etcd", rootfs.ETCD_TAG)]:
        archives[tool] = images.component_tar(f"{images.REPOSITORY}/{tool}:{tag}", binaries_folder / tool)
    folder = root / "var/tmp/images"
    folder.mkdir(parents=True)
    for name, data in archives.items():
        (folder / f"{name}.tar").write_bytes(data)
    run("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-eu", "-c", PRELOAD, "preload", root, timeout=600)
    remove_tree(folder)


# containerd runs in the root file system, in namespaces that end with the script.
PRELOAD = """
mount --make-rprivate /
mount -t proc proc "$1/proc"
mount -t tmpfs tmpfs "$1/run"
printf 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n' >"$1/run/config.toml"
chroot "$1" containerd --config /run/config.toml >"$1/run/log" 2>&1 &
tries=0
until chroot "$1" ctr version >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 600 ] || { tail -n 5 "$1/run/log" >&2; exit 1; }
    sleep 0.2
done
for image in "$1"/var/tmp/images/*.tar; do chroot "$1" ctr -n k8s.io images import "${image#"$1"}" >/dev/null; done
kill %1 2>/dev/null || kill $!
wait || true
"""
CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
UNITS = "/usr/lib/systemd/system"
# As the Vagrantfile has them.
NETWORK = os.environ.get("DAYTWO_VAGRANT_NETWORK", "192.168.56")
NUMBERS = {"cp1": 11, "w1": 21}
QUIET = ("apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_reap.service", "systemd-networkd-wait-online.service", "getty.target")


SSHD = "UseDNS no\nPasswordAuthentication no\nUsePAM no\nKexAlgorithms curve25519-sha256,ecdh-sha2-nistp256\n"


def _user(root: Path) -> None:
    """The user `vagrant` as Vagrant expects it: a key of its own, sudo without a password."""
    for file, line in (
        ("passwd", f"vagrant:x:{OPS_UID}:{OPS_UID}::/home/vagrant:/bin/bash"),
        ("group", f"vagrant:x:{OPS_UID}:"),
        ("shadow", "vagrant:*:20000:0:99999:7:::"),
    ):
        with (root / "etc" / file).open("a") as known:
            known.write(line + "\n")
    rootfs.write(root / "etc/sudoers.d/vagrant", "vagrant ALL=(ALL) NOPASSWD: ALL\n", 0o440)
    rootfs.write(root / "etc/ssh/sshd_config.d/daytwo.conf", SSHD)
    # A session of logind and a systemd of the user's own for each login are dear where each process is.
    session = root / "etc/pam.d/common-session"
    session.write_text("".join(line for line in session.read_text().splitlines(True) if "pam_systemd" not in line))
    rootfs.write(root / "home/vagrant/.ssh/authorized_keys", public_key(), 0o600)
    (root / "home/vagrant/.ssh").chmod(0o700)
    for path in (root / "home/vagrant", root / "home/vagrant/.ssh", root / "home/vagrant/.ssh/authorized_keys"):
        os.chown(path, OPS_UID, OPS_UID)


def boot_files(root: Path, box: str) -> None:
    """The kernel and a small initial file system, taken out of the root file system to boot from."""
    rootfs.write(root / "etc/initramfs-tools/conf.d/daytwo", "MODULES=list\nFRAMEBUFFER=n\nCOMPRESS=zstd\n")
    rootfs.write(root / "usr/share/initramfs-tools/modules.d/daytwo", INITRD_MODULES)
    found = sorted((root / "boot").glob("vmlinuz-*"))
    if len(found) != 1:
        raise LabError(f"the box has {len(found)} kernels in /boot, not one: {', '.join(path.name for path in found)}")
    release = found[0].name.removeprefix("vmlinuz-")
    run("chroot", root, "update-initramfs", "-u", "-k", release)
    vmlinuz, initrd = kernel(box)
    vmlinuz.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(found[0], vmlinuz)
    shutil.copyfile(root / "boot" / f"initrd.img-{release}", initrd)
    # libvirt's qemu may run as a user of its own.
    vmlinuz.chmod(0o644)
    initrd.chmod(0o644)


__all__ = ["STATE", "kernel", "make", "name", "private_key"]
