"""What the next boot sets, against what the kubelet and pods need now."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from roles.reboot import KubeletNeeds, facts, next_boot
from roles.reboot.facts import parse_facts
from roles.reboot.next_boot import Mounted, NextBoot, boot_sysctl, lost, refusals, warnings
from tests.unit.reboot.world import ASKS, PAGE, Node, candidate, plan

PROTECTS = KubeletNeeds(protects_kernel_defaults=True)
ALL = "vm.overcommit_memory=1\nkernel.panic=10\nkernel.panic_on_oops = 1\n"


def files(*found: tuple[str, str], **more: Any) -> NextBoot:
    return NextBoot(files=found, **more)


@pytest.mark.parametrize(
    ("found", "value"),
    [
        (files(), None),
        (files(("/etc/sysctl.d/50-a.conf", "kernel.panic=10\n")), "10"),
        (files(("/etc/sysctl.d/50-a.conf", "# kernel.panic=10\n; kernel.panic=10\n")), None),
        (files(("/etc/sysctl.d/50-a.conf", "  -kernel/panic =  10 \n")), "10"),
        # Over all directories by name; the last one wins.
        (files(("/etc/sysctl.d/10-a.conf", "kernel.panic=10"), ("/usr/lib/sysctl.d/50-b.conf", "kernel.panic=0")), "0"),
        (files(("/usr/lib/sysctl.d/10-a.conf", "kernel.panic=0"), ("/etc/sysctl.d/50-b.conf", "kernel.panic=10")), "10"),
        # One of the first directory masks those of its name.
        (files(("/etc/sysctl.d/50-a.conf", ""), ("/usr/lib/sysctl.d/50-a.conf", "kernel.panic=10")), None),
        (files(("/etc/sysctl.d/50-a.conf", "kernel.panic=1\nkernel.panic=10\n")), "10"),
        # Globs stand behind, whatever the order; `-NAME` takes one out of them.
        (files(("/etc/sysctl.d/50-a.conf", "kernel.panic=10\nkernel.pan*=1\n")), "10"),
        (files(("/etc/sysctl.d/50-a.conf", "kernel.pan*=10\n")), "10"),
        (files(("/etc/sysctl.d/50-a.conf", "kernel.pan*=10\n-kernel.panic\n")), None),
        (files(("/etc/sysctl.d/50-a.conf", "*=10\n")), None),
        (files(cmdline="quiet panic=10"), "10"),
        (files(cmdline="sysctl.kernel.panic=10 panic=1"), "10"),
        (files(("/etc/sysctl.d/50-a.conf", "kernel.panic=0"), cmdline="panic=10"), "0"),
    ],
)
def test_the_value_that_a_boot_sets(found: NextBoot, value: str | None) -> None:
    setting = boot_sysctl(found, "kernel.panic")
    assert (setting.value if setting else None) == value


def test_names_with_dots_in_a_part() -> None:
    found = files(("/etc/sysctl.d/50-a.conf", "net.ipv4.conf.eth0/100.rp_filter=2\n"))
    assert boot_sysctl(found, "net/ipv4/conf/eth0.100/rp_filter") == next_boot.Setting("2", "/etc/sysctl.d/50-a.conf")


@pytest.mark.parametrize(
    ("found", "needs", "words"),
    [
        (files(), PROTECTS, ["vm.overcommit_memory", "kernel.panic is 10 now and must be 10", "kernel.panic_on_oops"]),
        (files(), KubeletNeeds(), []),
        (files(("/etc/sysctl.d/90-k.conf", ALL)), PROTECTS, []),
        (
            files(("/etc/sysctl.d/90-k.conf", ALL), ("/etc/sysctl.d/99-x.conf", "kernel.panic=5")),
            PROTECTS,
            ["/etc/sysctl.d/99-x.conf sets 5"],
        ),
        (files(("/etc/sysctl.d/90-k.conf", ALL + "vm.panic_on_oom=1\n")), PROTECTS, ["vm.panic_on_oom"]),
        (files(("/etc/sysctl.d/90-k.conf", "vm.overcommit_memory=1"), cmdline="panic=10 oops=panic"), PROTECTS, []),
        (files(("/etc/s.conf", "vm.overcommit_memory=1"), kconfig="CONFIG_PANIC_TIMEOUT=10\nCONFIG_PANIC_ON_OOPS_VALUE=1"), PROTECTS, []),
        # A node that is a container has files of its own as well.
        (files(container=True), PROTECTS, ["kernel.panic"]),
        (files(fstab="/dev/sda2 none swap sw 0 0"), KubeletNeeds(), ["turns swap on (/etc/fstab: /dev/sda2)", "failSwapOn"]),
        (files(fstab="/dev/sda2 none swap sw,noauto 0 0\n# /swap none swap sw"), KubeletNeeds(), []),
        (files(fstab="/dev/sda2 none swap sw 0 0"), KubeletNeeds(fails_on_swap=False), []),
        (files(fstab="/dev/sda2 none swap sw 0 0", container=True), KubeletNeeds(), []),
        (files(fstab="/dev/sda2 none swap sw 0 0", swaps=1), KubeletNeeds(), []),
        (files(swap_units="swapfile.swap enabled enabled\ndev-sda2.swap generated -"), KubeletNeeds(), ["(swapfile.swap)"]),
        (files(zram="[zram0]\nzram-size = ram / 2\n"), KubeletNeeds(), ["zram-generator.conf"]),
        (files(mounts=(Mounted("/var/lib/etcd", "/var/lib/etcd", "/dev/sdb", "ext4"),)), KubeletNeeds(), ["/var/lib/etcd is on /dev/sdb"]),
        (files(mounts=(Mounted("/var/lib/etcd", "/var/lib/etcd"),), fstab="LABEL=e /var/lib/etcd ext4"), KubeletNeeds(), []),
        (
            files(mounts=(Mounted("/var/lib/etcd", "/var/lib/etcd", fragment="/run/systemd/generator/var-lib-etcd.mount"),), fstab=""),
            KubeletNeeds(),
            ["/var/lib/etcd"],
        ),
        (files(mounts=(Mounted("/var/lib/etcd", "/var/lib/etcd", fragment="/etc/systemd/system/var-lib-etcd.mount"),)), KubeletNeeds(), []),
        (files(mounts=(Mounted("/var/lib/etcd", "/", "/dev/sda1", "ext4"), Mounted("/var/lib/kubelet", "/var"))), KubeletNeeds(), []),
        (files(cgroup=2, loader=("linux /vmlinuz systemd.unified_cgroup_hierarchy=0",)), KubeletNeeds(fails_on_v1=True), ["failCgroupV1"]),
        (files(cgroup=2, loader=("linux /a systemd.unified_cgroup_hierarchy=0", "linux /b")), KubeletNeeds(fails_on_v1=True), []),
        (files(cgroup=1, systemd="257"), KubeletNeeds(), ["systemd 257 does not boot with it"]),
        (files(cgroup=1, systemd="252"), KubeletNeeds(), []),
    ],
)
def test_what_keeps_a_kubelet_from_its_next_start(found: NextBoot, needs: KubeletNeeds, words: list[str]) -> None:
    told = refusals(replace(found, sysctls={"kernel.panic": "10"}), needs)
    assert len(told) == bool(words) and all(word in told[0][0] for word in words), told


def test_a_service_that_makes_swap() -> None:
    assert "zramswap.service" in refusals(NextBoot(), KubeletNeeds(), frozenset({"zramswap.service"}))[0][0]


NOW = {
    "net.ipv4.ip_forward": "1",
    "net.bridge.bridge-nf-call-iptables": "1",
    "vm.max_map_count": "262144",
    "fs.inotify.max_user_instances": "128",
}


def test_what_pods_need_is_a_warning() -> None:
    found = files(
        sysctls=NOW,
        modules=frozenset({"br_netfilter", "overlay", "nbd"}),
        loads="# br_netfilter\noverlay\n",
        modprobes="ExecStartPre=-/sbin/modprobe nbd",
    )
    assert [text.partition(":")[0] for text in warnings(found, "6.1")] == [
        "net.ipv4.ip_forward is 1 now, and for the next boot no file that systemd-sysctl reads sets it",
        "vm.max_map_count is 262144 now, and for the next boot no file that systemd-sysctl reads sets it",
        "the module br_netfilter is loaded now, and nothing in modules-load.d loads it at the next boot",
    ]
    kept = replace(
        found, files=(("/etc/sysctl.d/1.conf", "net.ipv4.ip_forward=1\nvm.max_map_count=262144"),), loads="br-netfilter\noverlay"
    )
    assert warnings(kept, "6.1") == []
    off = replace(kept, files=(*kept.files, ("/etc/sysctl.d/2.conf", "net.bridge.bridge-nf-call-iptables=0")))
    assert "bridge-nf-call-iptables is 1 now, and for the next boot /etc/sysctl.d/2.conf sets 0" in warnings(off, "6.1")[0]
    other = replace(kept, provides={"6.12": frozenset({"overlay", "br_netfilter"})})
    assert warnings(other, "6.12") == ["the module nbd is loaded now, and kernel 6.12 does not have it: volumes over NBD need it"]
    # A node that is a container loads no modules.
    assert all("module" not in text for text in warnings(replace(found, container=True), "6.1"))


@pytest.mark.parametrize(
    ("now", "boot", "cmdline", "words"),
    [
        ("0", "enforcing", "", "SELinux is permissive now"), ("", "enforcing", "quiet selinux=1", "SELinux is off now"), ("1", "enforcing", "", ""),
        ("0", "permissive", "", ""), ("0", "enforcing", "enforcing=0", ""), ("", "", "", ""),
    ],
)  # fmt: skip
def test_a_boot_that_enforces_selinux(now: str, boot: str, cmdline: str, words: str) -> None:
    told = warnings(files(selinux=(now, boot), cmdline=cmdline), "6.1")
    assert len(told) == bool(words) and words in "".join(told)
    assert warnings(files(selinux=(now, boot), container=True), "6.1") == []


def test_what_a_boot_removes() -> None:
    paths = ("/usr/lib/systemd/system/kubelet.service", "/run/systemd/system/kubelet.service.d/x.conf", "/var/lib/kubelet/config.yaml")
    ((rule, out),) = refusals(NextBoot(), KubeletNeeds(files=paths))
    assert rule.startswith("/run/systemd/system/kubelet.service.d/x.conf: the boot removes this") and "/etc/systemd/system" in out
    assert refusals(NextBoot(), KubeletNeeds(files=paths[::2])) == []


def test_huge_pages_that_a_hand_has_reserved() -> None:
    assert [text.partition(":")[0] for text in warnings(files(sysctls={"vm.nr_hugepages": "512"}), "6.1")] == [
        "vm.nr_hugepages is 512 now, and for the next boot no file that systemd-sysctl reads sets it"
    ]
    assert warnings(files(sysctls={"vm.nr_hugepages": "0"}), "6.1") == []


def test_the_plan_has_all_of_it() -> None:
    one = replace(candidate(signs=ASKS, next=files(sysctls=NOW)), needs=PROTECTS)
    made = plan(one)
    (refusal,) = made.refusals
    assert refusal.startswith("w1: after the next boot its kubelet would not start (protectKernelDefaults): vm.overcommit_memory is ? now")
    assert refusal.endswith("or continue without this check: --data allow_unproven=true") and "write vm.overcommit_memory=1" in refusal
    assert "net.ipv4.ip_forward is 1 now" in made.warnings[0]
    assert not plan(one, allow_unproven=True).refusals


def test_what_a_boot_has_lost() -> None:
    off = files(sysctls={**NOW, "net.ipv4.ip_forward": "0"})
    assert lost(files(sysctls=NOW), files(sysctls=NOW), with_pods=True) == []
    (gone,) = lost(files(sysctls=NOW), off, with_pods=True)
    assert gone.startswith("net.ipv4.ip_forward was 1 before the boot, and is 0")
    assert "is gone" in lost(files(sysctls=NOW), files(sysctls={"net.ipv4.ip_forward": "1"}), with_pods=True)[0]
    # A network plugin may set it for its first pod; a file is read at the boot.
    assert lost(files(sysctls=NOW), off, with_pods=False) == []
    assert lost(files(sysctls=NOW), replace(off, files=(("/etc/sysctl.d/1.conf", "net.ipv4.ip_forward=1"),)), with_pods=False) == [gone]


def test_a_node_is_asked(node: Node) -> None:
    node.write("etc/sysctl.d/50-a.conf", "kernel.panic=10\n")
    (node.root / "etc/sysctl.d/60-masked.conf").symlink_to("/dev/null")
    node.write("usr/lib/sysctl.d/60-masked.conf", "kernel.panic=0\n")
    node.write("etc/modules-load.d/k8s.conf", "br_netfilter\n")
    node.write("etc/selinux/config", "# SELINUX= can take one of these\nSELINUX=enforcing\nSELINUXTYPE=targeted\n")
    found = parse_facts("w1", node.run(facts.facts_script("kubelet.service"))).next
    assert boot_sysctl(found, "kernel.panic") == next_boot.Setting("10", f"{node.root}/etc/sysctl.d/50-a.conf")
    assert "br_netfilter" in found.loads and found.sysctls["vm.overcommit_memory"] in "012" and found.cgroup in (1, 2)
    assert found.selinux[1] == "enforcing"


def test_the_tables_in_the_documents() -> None:
    for heading, table in (("| tunable |", next_boot.SYSCTLS), ("| module |", next_boot.MODULES)):
        told = re.findall(r"(?m)^\| `([^`]+)` \| ([^|]+) \|$", PAGE.partition(heading)[2].partition("\n\n")[0])
        assert told == [(one.name, one.why) for one in table]
