"""What a node says of its boot: the scripts themselves, run here on files of the test, and answers that are cut short or hostile."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from roles.reboot import facts
from roles.reboot.facts import BootUnit, FactsError, parse_facts, parse_state
from tests.unit.reboot.world import Node

BOOT = "0f0e5b6c-53a4-4b4b-9f4f-0123456789ab"


def test_a_node_that_needs_nothing(node: Node) -> None:
    found = parse_facts("w1", node.run(facts.facts_script("kubelet.service")))
    assert found.boot.id == Path("/proc/sys/kernel/random/boot_id").read_text().strip() and found.boot.age > 0
    assert found.boot.kernel == Path("/proc/sys/kernel/osrelease").read_text().strip() and found.family.strip() == "debian"
    assert (found.signs, found.packages, found.installed, found.scheduled, found.inhibitors, found.fstab) == ({}, (), {}, "", (), None)
    assert found.state.strip() == "running" and found.took is None and not found.ends_pods


def test_all_that_a_node_may_have(node: Node) -> None:
    for name in (
        "vmlinuz-6.1.0-18-amd64",
        "initrd.img-6.1.0-18-amd64",
        "vmlinuz-6.1.0-20-amd64",
        "vmlinuz-0-rescue-1",
        "vmlinuz-6.1.0-18-amd64.old",
    ):
        node.write(f"boot/{name}", "x")
    node.write("boot/vmlinuz-6.1.0-21-amd64", "")  # an installation that broke off
    node.write("lib/modules/5.14.0-1.el9.x86_64/vmlinuz", "x")
    node.write("boot/initramfs-5.14.0-1.el9.x86_64.img", "x")
    node.write("run/reboot-required", "*** System restart required ***\n")
    node.write("run/reboot-required.pkgs", "linux-base\nend\nlinux-base\nlibc6 $(touch /tmp/x)\n")
    node.write("run/systemd/shutdown/scheduled", "USEC=1\nMODE=reboot\n")
    node.write("run/systemd/inhibit/1", "WHAT=sleep:shutdown\nMODE=block\nWHO=apt\nPID=7\nWHY=an upgrade\n")
    node.write("run/systemd/inhibit/2", "WHAT=shutdown\nMODE=delay\nWHO=kubelet\n")
    node.write("run/systemd/inhibit/3", "WHAT=sleep\nMODE=block\nWHO=x\n")
    node.write("etc/fstab", "x\n")
    node.write("bin/systemd-analyze", "#!/bin/sh\necho 'Startup finished in 4.5s (kernel) + 1min 6.9s (userspace) = 1min 11.4s '\n")
    found = parse_facts("w1", node.run(facts.facts_script("kubelet.service")))
    assert found.installed == {"6.1.0-18-amd64": True, "6.1.0-20-amd64": False, "5.14.0-1.el9.x86_64": True}
    assert found.signs == {"reboot-required": True} and found.packages == ("end", "libc6 $(touch /tmp/x)", "linux-base")
    assert "MODE=reboot" in found.scheduled and found.inhibitors == ("apt (PID 7): an upgrade",)
    assert found.ends_pods
    assert found.fstab == ("/srv/data: unreachable on boot required source: UUID=1",) and found.took == pytest.approx(71.4)
    assert found.unit("kubelet.service").why_not_at_boot == "" and found.unit("kubelet.service").is_active
    assert found.unit("sshd.service") == found.unit("ssh.service") and not found.unit("ssh.service").why_not_at_boot
    assert found.unit("crio.service").why_not_at_boot == "it does not exist"


def test_the_state_during_a_reboot(node: Node) -> None:
    found = parse_state("w1", node.run(facts.state_script()))
    assert (found.state, found.result, found.said) == ("running", "success", "")


@pytest.mark.parametrize(
    ("unit", "why"),
    [
        (BootUnit("k", "loaded", "enabled"), ""),
        (BootUnit("k", "loaded", "disabled", wanted=("kubelet.service",)), ""),
        (BootUnit("k", "loaded", "disabled"), "disabled, and no other unit"),
        (BootUnit("k", "loaded", "enabled-runtime", wanted=("multi-user.target",)), "only until the next boot"),
        (BootUnit("k", "masked", "masked", wanted=("multi-user.target",)), "masked"),
        (BootUnit("k", "loaded", "masked-runtime"), "masked"),
        (BootUnit("k", "not-found"), "does not exist"),
        (BootUnit("k"), "does not exist"),
        (BootUnit("k", "loaded", ""), "no state"),
    ],
)
def test_units_that_the_next_boot_does_not_start(unit: BootUnit, why: str) -> None:
    assert (why in unit.why_not_at_boot) if why else not unit.why_not_at_boot


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("end", "ende"), (f"boot {BOOT}", "boot 7"), (f"boot {BOOT}", ""), ("clock 9.0 7.5 100 100", "clock 9.0"),
        ("clock 9.0 7.5 100 100", "clock 9 7 1 0"), ("state", "sate"), ("kernel Ng==", "kernel N!=="), ("result =", ""),
    ],
)  # fmt: skip
def test_an_answer_that_is_cut_or_malformed_is_an_error_of_the_host(old: str, new: str) -> None:
    text = f"boot {BOOT}\nclock 9.0 7.5 100 100\nkernel Ng==\nstate =\nresult =\nsaid {base64.b64encode(b'x y').decode()}=\nend"
    whole = parse_state("w1", text.splitlines(), lambda epoch: epoch - 5)
    assert (whole.boot.id, whole.boot.age, whole.boot.offset, whole.said) == (BOOT, 8.0, 2.5, "x y")
    assert old in text
    with pytest.raises(FactsError, match="w1"):
        parse_state("w1", text.replace(old, new).splitlines())


def test_another_boot_is_not_rebooted(node: Node) -> None:
    """The order names the boot that it ends."""
    node.write("bin/systemd-run", f'#!/bin/sh\necho "$*" >{node.root}/ordered\n')
    (node.root / "bin/systemd-run").chmod(0o755)
    here = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert node.run(facts.reboot_script(BOOT, "r1")) == [f"booted {here}"] and not (node.root / "ordered").exists()
    assert node.run(facts.reboot_script(here, "r1")) == ["ordered"]
    assert (node.root / "ordered").read_text().rstrip().endswith("systemctl reboot")
