"""What the virtual machines are made by, as far as it needs none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.lab.tools import LabError, wait_until
from tests.vagrant import box, host, machines, scenario

FOLDER = Path(machines.__file__).parent


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing here touches machines that are there."""
    for variable in ("DAYTWO_VAGRANT_PATIENCE", "DAYTWO_VAGRANT_DRIVER", "DAYTWO_VAGRANT_BOX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(box, "STATE", tmp_path)
    monkeypatch.setattr(host, "STATE", tmp_path)
    monkeypatch.setattr(machines, "TOLD", tmp_path / "daytwo.json")
    return tmp_path


def test_an_emulated_processor_needs_patience_and_a_real_one_none() -> None:
    assert machines.patience("kvm") == 1
    assert machines.patience("qemu") >= 5


def test_one_knob_for_all_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAYTWO_VAGRANT_PATIENCE", "12.5")
    assert machines.patience("kvm") == machines.patience("qemu") == 12.5
    machines.TOLD.write_text('{"patience": 12.5}')
    assert machines.waits(10) == 125


@pytest.mark.parametrize("given", ["0", "0.5", "101", "-1", "much", "1e3", "8;reboot"])
def test_a_patience_that_is_none_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAYTWO_VAGRANT_PATIENCE", given)
    with pytest.raises(LabError, match="is not a number from 1 to 100"):
        machines.patience("qemu")


@pytest.mark.parametrize("wanted", ["kvm", "qemu"])
def test_the_driver_that_is_asked_for_is_taken_untried(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAYTWO_VAGRANT_DRIVER", wanted)
    monkeypatch.setattr(host, "_kvm_boots", lambda kernel: pytest.fail("tried"))
    assert host.driver(Path("/nowhere")) == wanted


def test_an_unknown_driver_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAYTWO_VAGRANT_DRIVER", "xen")
    with pytest.raises(LabError, match="neither kvm nor qemu"):
        host.driver(Path("/nowhere"))


@pytest.mark.parametrize(("boots", "driver"), [(True, "kvm"), (False, "qemu")])
def test_kvm_is_tried_once(boots: bool, driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Path] = []

    def trial(kernel: Path) -> bool:
        tried.append(kernel)
        return boots

    monkeypatch.setattr(host, "_kvm_boots", trial)
    assert [host.driver(Path("/k")), host.driver(Path("/k"))] == [driver, driver]
    assert tried == [Path("/k")]


def test_only_a_libvirtd_that_was_started_here_is_ended(own_state: Path) -> None:
    assert host.own_libvirtd() is None
    file = own_state / "libvirtd.pid"
    # A PID that something else has by now.
    file.write_text(str(os.getpid()))
    assert host.own_libvirtd() is None
    with subprocess.Popen(["sh", "-c", "read _", "libvirtd", "--pid-file", str(file)], stdin=subprocess.PIPE) as ours:
        # The kernel says a process is started a moment before its command line can be read.
        wait_until("its command line", Path(f"/proc/{ours.pid}/cmdline").read_bytes, 60)
        file.write_text(str(ours.pid))
        assert host.own_libvirtd() == ours.pid
        host.stop_libvirtd()
        assert ours.wait() == -15
    assert not file.exists()


def test_steps_run_in_their_order_and_only_where_their_deploy_is_there() -> None:
    there = {path.stem for path in (machines.ROOT / "deploys").glob("*.py")}
    assert scenario.chosen(()) == [name for name in scenario.STEPS if name not in scenario.OPTIONAL or name in there]
    assert scenario.chosen(("reboot", "machines")) == ["machines", "reboot"]
    with pytest.raises(LabError, match="there is no step dance; steps are machines, "):
        scenario.chosen(("dance",))


def test_the_box_is_another_one_as_soon_as_its_content_is(monkeypatch: pytest.MonkeyPatch) -> None:
    if not shutil.which("ssh-keygen"):
        pytest.skip("needs ssh-keygen")
    name = box.name("1.36.3")
    assert box.name("1.36.3") == name
    assert re.fullmatch(r"daytwo-1\.36\.3-[0-9a-f]{10}", name)
    assert box.name("1.35.0") != name
    monkeypatch.setattr(box, "DISK_GIB", 11)
    assert box.name("1.36.3") != name


def test_the_private_key_is_for_its_owner_only() -> None:
    if not shutil.which("ssh-keygen"):
        pytest.skip("needs ssh-keygen")
    key = box.private_key()
    assert key.stat().st_mode & 0o077 == 0
    assert key.parent.stat().st_mode & 0o077 == 0
    assert box.private_key() == key and box.public_key().startswith("ssh-ed25519 ")


def test_the_vagrantfile_and_the_driver_name_the_same_machines() -> None:
    text = (FOLDER / "Vagrantfile").read_text()
    assert tuple(re.findall(r'^  "(\w+)" => \{ "role"', text, re.MULTILINE)) == machines.NAMES


def test_what_the_vagrantfile_reads_is_what_the_driver_tells() -> None:
    read = set(re.findall(r'own(?:\[|\.fetch\(|\.key\?\()"(\w+)"', (FOLDER / "Vagrantfile").read_text()))
    written = set(re.findall(r'"(\w+)":', "".join(re.findall(r"found.*", (FOLDER / "machines.py").read_text()))))
    assert read <= written | {"patience"}


def test_the_provisioning_script_is_sound() -> None:
    script = FOLDER / "files/provision.sh"
    subprocess.run(["sh", "-n", script], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", script], check=True)


def test_the_token_is_one_that_kubeadm_takes() -> None:
    found = re.findall(r"^token=(\S+)", (FOLDER / "files/provision.sh").read_text(), re.MULTILINE)
    assert [bool(re.fullmatch(r"[a-z0-9]{6}\.[a-z0-9]{16}", token)) for token in found] == [True]


def test_a_node_that_is_one_already_is_left_alone(tmp_path: Path) -> None:
    script = (FOLDER / "files/provision.sh").read_text().replace("/etc/kubernetes/daytwo-node", str(tmp_path / "node"))
    (tmp_path / "node").touch()
    environment = {"NAME": "w1", "ROLE": "worker", "PATIENCE": "1", "VERSION": "1.36.3", "PATH": os.environ["PATH"]}
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("w1: is a node already")
