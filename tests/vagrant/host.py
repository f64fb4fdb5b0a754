"""What this machine must have for virtual machines: packages, libvirtd (with or without systemd), a storage pool, KVM or not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from tests.lab.tools import LabError, long_step, run, say, wait_until
from tests.vagrant.box import STATE

URI = "qemu:///system"
POOL = "daytwo"
PACKAGES = {
    "vagrant": "vagrant",
    "libvirtd": "libvirt-daemon-system",
    "virsh": "libvirt-clients",
    "qemu-img": "qemu-utils",
    "dnsmasq": "dnsmasq-base",
    "iptables": "iptables",
    "ssh": "openssh-client",
}
EMULATORS = {"x86_64": ("qemu-system-x86_64", "qemu-system-x86"), "aarch64": ("qemu-system-aarch64", "qemu-system-arm")}
# Where no systemd runs there are no units, no cgroups and no namespaces for libvirtd to put machines into.
QEMU_CONF = """\
user = "root"
group = "root"
dynamic_ownership = 0
security_driver = "none"
namespaces = []
cgroup_controllers = []
stdio_handler = "file"
"""
KVM_TRIAL_SECONDS = 20


def has_systemd() -> bool:
    """Whether systemd runs this machine (sd_booted(3))."""
    return Path("/run/systemd/system").is_dir()


def prepare() -> None:
    """Packages, libvirtd and the storage pool; does only what is missing."""
    if os.geteuid() != 0:
        raise LabError("the virtual machines need root: libvirtd, bridges and a storage pool (try sudo make vagrant-up)")
    _install()
    STATE.mkdir(parents=True, exist_ok=True)
    STATE.chmod(0o755)
    if not _answers():
        with long_step("starting libvirtd"):
            _start_libvirtd()
            wait_until("libvirtd to answer (see " + str(STATE / "libvirtd.log") + ")", _answers, 120)
    _pool()


def _install() -> None:
    program, package = EMULATORS[os.uname().machine]
    missing = sorted({package for tool, package in {**PACKAGES, program: package}.items() if not shutil.which(tool)})
    if "vagrant-libvirt" not in (run("vagrant", "plugin", "list", check=False).stdout if shutil.which("vagrant") else ""):
        missing.append("vagrant-libvirt")
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise LabError(f"install these first (there is no apt-get here): {', '.join(missing)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with long_step(f"installing {', '.join(missing)}"):
        run("apt-get", "update", "-qq", env=environment)
        run("apt-get", "install", "-y", "-qq", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300", *missing, env=environment)


def _answers() -> bool:
    return run("virsh", "--connect", URI, "version", check=False, timeout=60).returncode == 0


def _pid_file() -> Path:
    return STATE / "libvirtd.pid"


def _start_libvirtd() -> None:
    if has_systemd():
        run("systemctl", "start", "libvirtd")
        return
    configuration = STATE / "qemu.conf"
    configuration.write_text(QEMU_CONF)
    # Its configuration has one place only; the machine's own file stays as it is, ours is seen by this libvirtd alone.
    Path("/etc/libvirt/qemu.conf").touch()
    script = f"mount --bind {configuration} /etc/libvirt/qemu.conf && exec libvirtd --pid-file {_pid_file()}"
    with (STATE / "libvirtd.log").open("a") as log:
        subprocess.Popen(
            ["unshare", "--mount", "--propagation", "slave", "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def own_libvirtd() -> int | None:
    """The PID of the libvirtd that was started here; None where there is none, or it is systemd's."""
    try:
        pid = int(_pid_file().read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    return pid if str(_pid_file()).encode() in words else None


def stop_libvirtd() -> None:
    """The libvirtd that was started here ends; one of systemd's stays."""
    if pid := own_libvirtd():
        os.kill(pid, signal.SIGTERM)
        wait_until("libvirtd to end", lambda: own_libvirtd() is None, 60)
    _pid_file().unlink(missing_ok=True)


def _pool() -> None:
    """A folder of our own for the machines' disks, which goes with them."""
    listed = run("virsh", "--connect", URI, "pool-list", "--all", "--name").stdout.split()
    folder = STATE / "pool"
    folder.mkdir(exist_ok=True)
    if POOL not in listed:
        run("virsh", "--connect", URI, "pool-define-as", POOL, "dir", "--target", folder)
    if POOL not in run("virsh", "--connect", URI, "pool-list", "--name").stdout.split():
        run("virsh", "--connect", URI, "pool-start", POOL)


def remove_pool() -> None:
    for verb in ("pool-destroy", "pool-undefine"):
        run("virsh", "--connect", URI, verb, POOL, check=False)


def remove_networks(*names: str) -> None:
    for name in names:
        for verb in ("net-destroy", "net-undefine"):
            run("virsh", "--connect", URI, verb, name, check=False)


def driver(kernel: Path) -> str:
    """`kvm` where a kernel really boots under it, else `qemu`; DAYTWO_VAGRANT_DRIVER decides where it is set.

    /dev/kvm that opens is no proof: under some hypervisors a guest then hangs. So the box's kernel is booted without a disk, which
    ends in a panic within a second or two where KVM works.
    """
    wanted = os.environ.get("DAYTWO_VAGRANT_DRIVER", "")
    if wanted not in ("", "kvm", "qemu"):
        raise LabError(f"DAYTWO_VAGRANT_DRIVER={wanted!r} is neither kvm nor qemu")
    if wanted:
        return wanted
    known = STATE / "driver"
    if not known.exists():
        found = "kvm" if _kvm_boots(kernel) else "qemu"
        say("KVM works here" if found == "kvm" else "KVM does not work here: the machines are emulated, which takes its time")
        known.write_text(found)
    return known.read_text()


def _kvm_boots(kernel: Path) -> bool:
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    program, _ = EMULATORS[os.uname().machine]
    console = "ttyAMA0" if os.uname().machine == "aarch64" else "ttyS0"
    command = [program, "-accel", "kvm", "-cpu", "host", "-m", "256", "-no-reboot", "-display", "none", "-monitor", "none"]
    command += [*(["-machine", "virt"] if console == "ttyAMA0" else []), "-serial", "null", "-kernel", str(kernel)]
    command += ["-append", f"console={console} panic=-1"]
    trial = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + KVM_TRIAL_SECONDS
    try:
        while time.monotonic() < end and trial.poll() is None:
            time.sleep(0.2)
        return trial.poll() == 0
    finally:
        trial.kill()
        trial.wait()
