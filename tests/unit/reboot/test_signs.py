"""Each family's own sign that a node needs a reboot, and `not known` where there is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from roles.engine.node import judge_signs
from roles.engine.node.reboot_signs import SIGNS
from roles.reboot import facts
from roles.reboot.facts import parse_facts
from tests.unit.reboot.world import PAGE, Node, candidate, plan

SUSE, RED_HAT = 'opensuse-leap\n"suse opensuse"\n', '"rocky"\n"rhel centos fedora"\n'


@pytest.mark.parametrize(
    ("said", "family", "known", "asking"),
    [
        ({}, "debian\n", False, []),
        ({"reboot-required": False}, "debian\n", True, []),
        ({"reboot-required": True}, "debian\n", True, ["reboot-required"]),
        ({}, 'ubuntu\n"debian"\n', False, []),
        ({"reboot-needed": True}, SUSE, True, ["reboot-needed"]),
        ({}, SUSE, False, []),
        ({"zypper": False}, SUSE, True, []),
        ({"zypper": True}, SUSE, True, ["zypper"]),
        ({}, RED_HAT, False, []),
        ({"needs-restarting": False}, RED_HAT, True, []),
        ({"needs-restarting": True}, RED_HAT, True, ["needs-restarting"]),
        ({"ostree": True, "needs-restarting": False}, "fedora\n", True, ["ostree"]),
        ({"nixos": True}, "nixos\n", True, ["nixos"]),
        ({"nixos": False}, "nixos\n", True, []),
        ({"modules-gone": True}, "arch\n", True, ["modules-gone"]),
        ({"update-engine": True}, "flatcar\ncoreos\n", True, ["update-engine"]),
        ({}, "arch\n", False, []),
        ({}, "photon\n", False, []),
        ({}, "", False, []),
        # Whatever the family: who asks for it, is heard.
        ({"reboot-required": True}, "arch\n", True, ["reboot-required"]),
        ({"needs-restarting": True}, "debian\n", True, ["needs-restarting"]),
    ],
)
def test_what_a_node_says(said: dict[str, bool], family: str, known: bool, asking: list[str]) -> None:
    found = judge_signs(said, family)
    assert (found.known, [one.key for one in found.asking]) == (known, asking)
    made = plan(candidate(signs=said, family=family))
    assert made.what == ("reboot" if asking else "none") and made.known is known
    assert ("is not known on this node" in made.why) is not known


def test_the_plan_names_the_family_that_cannot_say_it() -> None:
    made = plan(candidate(signs={}, family=SUSE))
    assert made.why.startswith("whether libraries need a reboot is not known on this node (opensuse-leap), and no installed kernel")
    assert plan(candidate(signs={"needs-restarting": False}, family=RED_HAT)).why.startswith("no need by `needs-restarting -r`, and no")


@pytest.mark.parametrize(
    ("program", "script", "said"),
    [
        ("needs-restarting", "exit 0", {"needs-restarting": False}),
        ("needs-restarting", "exit 1", {"needs-restarting": True}),
        ("needs-restarting", "echo 'Reboot is required to fully utilize these updates.'; exit 1", {"needs-restarting": True}),
        ("needs-restarting", "echo 'No such command: needs-restarting.'; exit 1", {}),
        ("needs-restarting", "echo 'Error: rpmdb open failed'; exit 1", {}),
        ("needs-restarting", "exit 2", {}),
        ("dnf", "[ \"$*\" = '-C needs-restarting -r' ] && echo 'Reboot is required.' && exit 1", {"needs-restarting": True}),
        ("dnf", "exit 0", {"needs-restarting": False}),
        ("dnf", "echo 'No such command: needs-restarting.'; exit 1", {}),
        ("dnf", "exit 1", {}),
        ("zypper", "exit 102", {"zypper": True}),
        ("zypper", "exit 0", {"zypper": False}),
        ("zypper", "exit 7", {}),
        ("update_engine_client", "echo CURRENT_OP=UPDATE_STATUS_UPDATED_NEED_REBOOT", {"update-engine": True}),
        ("update_engine_client", "echo CURRENT_OP=UPDATE_STATUS_IDLE", {"update-engine": False}),
        ("update_engine_client", "exit 1", {}),
    ],
)
def test_the_programs_that_are_asked(node: Node, program: str, script: str, said: dict[str, bool]) -> None:
    node.write(f"bin/{program}", f"#!/bin/sh\n{script}\n")
    (node.root / "bin" / program).chmod(0o755)
    assert parse_facts("w1", node.run(facts.facts_script("kubelet.service"))).signs == said


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("run/reboot-needed", {"reboot-needed": True}),
        ("run/reboot-required", {"reboot-required": True}),
        ("run/ostree/staged-deployment", {"ostree": True}),
        ("run/ostree-booted", {"ostree": False}),
    ],
)
def test_the_files_that_are_looked_for(node: Node, path: str, said: dict[str, bool]) -> None:
    node.write(path, "")
    assert parse_facts("w1", node.run(facts.facts_script("kubelet.service"))).signs == said


@pytest.mark.parametrize(
    "writer",
    [
        "usr/share/update-notifier/notify-reboot-required",
        "etc/kernel/postinst.d/update-notifier",
        "etc/kernel/postinst.d/unattended-upgrades",
    ],
)
def test_a_file_that_nothing_would_write_is_no_answer(node: Node, writer: str) -> None:
    def said() -> dict[str, bool]:
        return dict(parse_facts("w1", node.run(facts.facts_script("kubelet.service"))).signs)

    assert said() == {}
    node.write(writer, "#!/bin/sh\n")
    assert said() == {}  # dpkg leaves a hook that somebody has switched off
    (node.root / writer).chmod(0o755)
    assert said() == {"reboot-required": False}
    node.write("run/reboot-required", "")
    assert said() == {"reboot-required": True}


@pytest.mark.parametrize("part", ["kernel", "initrd", "kernel-modules"])
def test_another_system_of_nixos(node: Node, part: str) -> None:
    for system in ("booted", "current"):
        for name in ("kernel", "initrd", "kernel-modules"):
            node.write(f"store/{name}", "")
            (node.root / f"run/{system}-system").mkdir(exist_ok=True)
            (node.root / f"run/{system}-system/{name}").symlink_to(node.root / f"store/{name}")
    assert parse_facts("w1", node.run(facts.facts_script("kubelet.service"))).signs == {"nixos": False}
    (node.root / "run/current-system" / part).unlink()
    (node.root / "run/current-system" / part).symlink_to(node.root / "store")
    assert parse_facts("w1", node.run(facts.facts_script("kubelet.service"))).signs == {"nixos": True}


@pytest.mark.parametrize(("container", "loaded", "said"), [("1", "x", {"modules-gone": True}), ("0", "x", {}), ("1", "", {})])
def test_modules_that_the_running_kernel_has_lost(node: Node, container: str, loaded: str, said: dict[str, bool]) -> None:
    """A container has those of its host; a kernel that has loaded none may have none."""
    node.write("bin/systemd-detect-virt", f"#!/bin/sh\nexit {container}\n")
    (node.root / "bin/systemd-detect-virt").chmod(0o755)
    node.write("proc/modules", loaded)
    script = facts.facts_script("kubelet.service").replace("/proc/modules", f"{node.root}/proc/modules")
    assert parse_facts("w1", node.run(script)).signs == {}
    node.write("lib/modules/9.9.9-arch1-1/modules.dep", "x")
    assert parse_facts("w1", node.run(script)).signs == said
    running = Path("/proc/sys/kernel/osrelease").read_text().strip()
    (node.root / "lib/modules" / running).mkdir()
    assert parse_facts("w1", node.run(script)).signs == {}


def test_the_table_of_signs_in_the_documents() -> None:
    table = PAGE.partition("| sign that a node needs a reboot |")[2].partition("\n\n")[0]
    told = re.findall(r"(?m)^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", table)
    assert [row[:2] for row in told if row[0].strip("-")] == [(one.shown, ", ".join(one.families)) for one in SIGNS]
