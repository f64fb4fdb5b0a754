"""What the next boot of a node sets, against what its kubelet and its pods need now. Pure.

What only a hand, a package's script or another program has set in the running kernel is gone after a boot (kubernetes#66241). What the
kubelet itself needs to start is refused; the rest is a warning, and is compared once more after the boot.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from roles.engine.bounds import digits
from roles.engine.starting import TUNABLES

#: What the kernel starts with (Documentation/admin-guide/sysctl), where a kubelet checks a tunable.
_KERNELS = {"kernel.keys.root_maxkeys": "1000000", "kernel.keys.root_maxbytes": "25000000"}
_BUILT_IN = {"kernel.panic": "CONFIG_PANIC_TIMEOUT", "kernel.panic_on_oops": "CONFIG_PANIC_ON_OOPS_VALUE"}


@dataclass(frozen=True)
class PodsNeed:
    """A tunable or a module that pods need, not the kubelet's start. `default`: the kernel's own value; `why`: what breaks without it."""

    name: str
    default: str
    why: str


#: docs/disruption.md has both tables for operators.
SYSCTLS = (
    PodsNeed("net.ipv4.ip_forward", "0", "without it no packet leaves or reaches the pods of this node"),
    PodsNeed("net.ipv6.conf.all.forwarding", "0", "without it no IPv6 packet leaves or reaches the pods of this node"),
    PodsNeed("net.bridge.bridge-nf-call-iptables", "1", "without it Services do not work between pods of one bridge"),
    PodsNeed("net.bridge.bridge-nf-call-ip6tables", "1", "without it IPv6 Services do not work between pods of one bridge"),
    PodsNeed("fs.inotify.max_user_instances", "128", "programs in pods that watch files fail beyond it"),
    PodsNeed("fs.inotify.max_user_watches", "", "programs in pods that watch files fail beyond it"),
    PodsNeed("vm.max_map_count", "65530", "databases such as Elasticsearch do not start below their minimum"),
    PodsNeed("net.netfilter.nf_conntrack_max", "", "new connections are dropped when the table is full"),
    PodsNeed("vm.nr_hugepages", "0", "pods that request hugepages have none, and the node reports fewer"),
    PodsNeed("net.ipv4.neigh.default.gc_thresh3", "1024", "a node of a large cluster does not find all others"),
    PodsNeed("user.max_user_namespaces", "", "pods with a user namespace do not start without it"),
)
MODULES = (
    PodsNeed("br_netfilter", "", "without it Services do not work between pods of one bridge"),
    PodsNeed("overlay", "", "the container runtime keeps its images in it"),
    PodsNeed("ip_vs", "", "kube-proxy in the mode ipvs needs it"),
    PodsNeed("ip_vs_rr", "", "kube-proxy in the mode ipvs needs it"),
    PodsNeed("ip_vs_wrr", "", "kube-proxy in the mode ipvs needs it"),
    PodsNeed("ip_vs_sh", "", "kube-proxy in the mode ipvs needs it"),
    PodsNeed("nf_conntrack", "", "kube-proxy needs it"),
    PodsNeed("iscsi_tcp", "", "volumes over iSCSI need it"),
    PodsNeed("rbd", "", "volumes of Ceph need it"),
    PodsNeed("nbd", "", "volumes over NBD need it"),
    PodsNeed("nvme_tcp", "", "volumes over NVMe need it"),
    PodsNeed("dm_crypt", "", "encrypted volumes need it"),
    PodsNeed("wireguard", "", "an encrypted pod network needs it"),
)
#: Services that make swap at a boot, if they are enabled.
SWAP_UNITS = ("dphys-swapfile.service", "zramswap.service", "zram-config.service", "swapspace.service")
#: Whoever brings up the network, and what else of a node somebody may have started by hand.
NETWORKS = ("systemd-networkd.service", "NetworkManager.service", "networking.service", "wicked.service", "network.service")
WITH_THE_NODE = (
    "systemd-resolved.service", "firewalld.service", "nftables.service", "ufw.service", "etcd.service", "keepalived.service",
    "haproxy.service", "chrony.service", "chronyd.service", "ntpd.service", "systemd-timesyncd.service", "iscsid.service",
    "multipathd.service", "openvswitch-switch.service", "nvidia-persistenced.service", "nvidia-fabricmanager.service",
)  # fmt: skip
#: Those that somebody may have stopped by hand, and that a boot starts again.
FIREWALLS = (
    "firewalld.service",
    "ufw.service",
    "nftables.service",
    "iptables.service",
    "ip6tables.service",
    "netfilter-persistent.service",
)
#: Where units are that no boot finds again, unless a program writes them (systemd.unit(5), `systemctl edit --runtime`, set-property).
_UNTIL_THE_BOOT = ("/run/systemd/system/", "/run/systemd/system.control/", "/run/systemd/transient/", "/tmp/", "/dev/shm/")
#: Directories of a node that must be the same after a boot; the kubelet's own is added.
DIRECTORIES = ("/var/lib/etcd", "/var/lib/containerd", "/var/lib/containers", "/var/lib/docker")
# systemd boots only cgroup v2 from this version on, unless the kernel's command line says this (its NEWS).
_ONLY_V2, _FORCED = 256, "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1"
_V1 = ("systemd.unified_cgroup_hierarchy=0", "systemd.unified_cgroup_hierarchy=no", "systemd.unified_cgroup_hierarchy=false")


@dataclass(frozen=True)
class Mounted:
    """The mount that a directory is in; `fragment`: the file that configures its unit, "" if nothing does."""

    directory: str
    target: str
    source: str = ""
    kind: str = ""
    fragment: str = ""


@dataclass(frozen=True)
class NextBoot:
    """What a node answered. `sysctls` and `modules` are of the running kernel; `files` those of sysctl.d, path and content, in the order of
    their directories; `loads` is the text of modules-load.d, `modprobes` what units load; `provides`: the modules of each installed kernel;
    `cgroup` 1 or 2; `loader`: the command lines of the boot loader's entries; `systemd`: the version of its file. `selinux`: 0 or 1,
    whether it enforces now ("": there is none), and what its configuration sets; `container`: the node has no kernel of its own."""

    container: bool = False
    files: tuple[tuple[str, str], ...] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    cmdline: str = ""
    kconfig: str = ""
    loader: tuple[str, ...] = ()
    modules: frozenset[str] = frozenset()
    loads: str = ""
    modprobes: str = ""
    provides: Mapping[str, frozenset[str]] = field(default_factory=dict)
    fstab: str | None = None
    swaps: int = 0
    swap_units: str = ""
    zram: str = ""
    mounts: tuple[Mounted, ...] = ()
    cgroup: int = 0
    systemd: str = ""
    selinux: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class KubeletNeeds:
    """What the configuration that the boot starts with asks for; `files`: those that its unit and its command line name."""

    protects_kernel_defaults: bool = False
    fails_on_swap: bool = True
    fails_on_v1: bool = False
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Setting:
    """What a boot sets: the value, and where ("" for the kernel's own)."""

    value: str
    where: str = ""


# ---- sysctl.d


def boot_sysctl(found: NextBoot, name: str) -> Setting | None:
    """What the next boot sets a tunable to, as systemd-sysctl(8) reads its files; None if nothing sets it. Files are sorted by name over
    all directories, one of the first directory masks those of its name; a later line wins; a line without a glob beats one with a glob,
    and `-NAME` alone takes a name out of all globs (sysctl.d(5)). The kernel's command line comes before all of them."""
    key = _normal(name)
    by_name: dict[str, tuple[str, str]] = {}
    for path, content in found.files:
        by_name.setdefault(posixpath.basename(path), (path, content))
    exact, globbed, excluded = None, None, False
    for _, (path, content) in sorted(by_name.items()):
        for left, value in _lines(content):
            if value is None:
                excluded = excluded or left == key
            elif left == key:
                exact = Setting(value, path)
            elif _matches(left, key):
                globbed = Setting(value, path)
    # The command line of a container is that of its host.
    return exact or (None if excluded else globbed) or (None if found.container else _of_command_line(found.cmdline, name))


def _lines(content: str) -> Iterator[tuple[str, str | None]]:
    for line in content.splitlines():
        text = line.strip()
        if not text or text[0] in "#;":
            continue
        left, equals, value = text.partition("=")
        left = left.strip()
        if equals:
            yield _normal(left.removeprefix("-")), " ".join(value.split())
        elif left.startswith("-"):
            yield _normal(left.removeprefix("-")), None


def _normal(name: str) -> str:
    """With slashes: dots and slashes change places if the first separator is a dot."""
    first = re.search(r"[./]", name)
    return name.translate(str.maketrans("./", "/.")) if first and first[0] == "." else name


def _matches(pattern: str, key: str) -> bool:
    parts, names = pattern.split("/"), key.split("/")
    return any(one in pattern for one in "*?[") and len(parts) == len(names) and all(map(fnmatch.fnmatchcase, names, parts))


def _of_command_line(cmdline: str, name: str) -> Setting | None:
    """Of Documentation/admin-guide/kernel-parameters: sysctl.NAME=, panic=, oops=panic."""
    for word in cmdline.split():
        left, _, value = word.partition("=")
        if (left.startswith("sysctl.") and _normal(left[7:]) == _normal(name)) or (left == "panic" and name == "kernel.panic"):
            return Setting(value, "the kernel's command line")
        if word == "oops=panic" and name == "kernel.panic_on_oops":
            return Setting("1", "the kernel's command line")
    return None


def _kernels_own(found: NextBoot, name: str) -> str:
    built = re.search(rf"^{_BUILT_IN.get(name, '-')}=(-?[0-9]+)$", found.kconfig, re.MULTILINE)
    return built[1] if built else _KERNELS.get(name, "0")


# ---- the judgement


def refusals(found: NextBoot, needs: KubeletNeeds, enabled: frozenset[str] = frozenset()) -> list[tuple[str, str]]:
    """What would keep the kubelet from starting after the next boot, or give it other directories: rule and way out. `enabled`: units of
    SWAP_UNITS that the boot starts."""
    told = [*_tunables(found, needs), *_volatile(needs)]
    if not found.container:
        told += [*_swap(found, needs, enabled), *_mounts(found), *_cgroups(found, needs)]
    return told


def _tunables(found: NextBoot, needs: KubeletNeeds) -> Iterator[tuple[str, str]]:
    if not needs.protects_kernel_defaults:
        return  # the kubelet writes them itself
    missing, wanted = [], []
    for one in TUNABLES:
        setting = boot_sysctl(found, one.name)
        value = setting.value if setting else _kernels_own(found, one.name)
        if value == str(one.value):
            continue
        now = found.sysctls.get(one.name, "?")
        by = f"{setting.where} sets {setting.value}" if setting else "no file that systemd-sysctl reads sets it"
        missing.append(f"{one.name} is {now} now and must be {one.value}, but {by}")
        wanted.append(f"{one.name}={one.value}")
    if missing:
        yield (
            f"after the next boot its kubelet would not start (protectKernelDefaults): {'; '.join(missing)}",
            f"write {', '.join(wanted)} into the last file of /etc/sysctl.d, one on each line",
        )


def _volatile(needs: KubeletNeeds) -> Iterator[tuple[str, str]]:
    if gone := [path for path in needs.files if path.startswith(_UNTIL_THE_BOOT)]:
        rule = f"{', '.join(gone)}: the boot removes this, and its kubelet would start without it, or not at all"
        yield rule, "move it to where it stays (/etc/systemd/system for units, else /etc/kubernetes)"


def _swap(found: NextBoot, needs: KubeletNeeds, enabled: frozenset[str]) -> Iterator[tuple[str, str]]:
    if needs.fails_on_swap and not found.swaps and (makers := list(_swap_makers(found, enabled))):
        yield (
            f"the next boot turns swap on ({', '.join(makers)}), and its kubelet does not start with swap (failSwapOn); no swap is on now",
            "remove that, or set failSwapOn=false",
        )


def _swap_makers(found: NextBoot, enabled: frozenset[str]) -> Iterator[str]:
    for words in _fstab(found.fstab or ""):
        if words[2] == "swap" and "noauto" not in words[3].split(","):
            yield f"/etc/fstab: {words[0]}"
    for line in found.swap_units.splitlines():
        name, _, state = line.strip().partition(" ")
        # Units that are generated from /etc/fstab may be of an older one.
        if state.split()[:1] == ["enabled"]:
            yield name
    if re.search(r"^\s*\[zram[0-9]+\]", found.zram, re.MULTILINE) and "systemd.zram=0" not in found.cmdline.split():
        yield "zram-generator.conf"
    yield from sorted(enabled)


def _fstab(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 3 and not words[0].startswith("#"):
            yield [*words, "defaults"]


def _mounts(found: NextBoot) -> Iterator[tuple[str, str]]:
    targets = {posixpath.normpath(words[1].replace("\\040", " ")) for words in _fstab(found.fstab or "") if "noauto" not in words[3]}
    for one in found.mounts:
        if one.target.count("/") < 3 or one.kind in ("zfs", "autofs", "overlay") or one.target in targets:
            continue
        # A unit that was generated from /etc/fstab may be of an older one.
        if not one.fragment or one.fragment.startswith("/run/systemd/generator/"):
            yield (
                f"{one.directory} is on {one.source or 'a file system'}, mounted on {one.target}, and neither /etc/fstab nor a unit mounts"
                " it at the next boot: the directory would be another one",
                f"add {one.target} to /etc/fstab",
            )


def _cgroups(found: NextBoot, needs: KubeletNeeds) -> Iterator[tuple[str, str]]:
    entries = [line.split() for line in found.loader]
    if found.cgroup == 2 and needs.fails_on_v1 and entries and all(any(word in line for word in _V1) for line in entries):
        rule = "every entry of its boot loader boots with cgroup v1, and its kubelet does not start there (failCgroupV1)"
        yield rule, "remove systemd.unified_cgroup_hierarchy=0 from the kernel's command line"
    if found.cgroup == 1 and (digits(found.systemd) or 0) >= _ONLY_V2 and _FORCED not in found.cmdline:
        rule = f"it runs with cgroup v1, and the installed systemd {found.systemd} does not boot with it"
        yield (
            rule,
            "move the node to cgroup v2 first: remove systemd.unified_cgroup_hierarchy=0 from the kernel's command line, and drain it",
        )


def warnings(found: NextBoot, kernel: str) -> list[str]:
    """What pods have now and the next boot does not set. `kernel`: the release that it starts."""
    told = []
    for one in SYSCTLS:
        now, setting = found.sysctls.get(one.name), boot_sysctl(found, one.name)
        if found.container and not one.name.startswith("net."):
            continue  # those of its host
        if now is None or (setting is None and now == one.default) or (setting is None and not one.default):
            continue
        if setting is None or setting.value != now:
            by = f"{setting.where} sets {setting.value}" if setting else "no file that systemd-sysctl reads sets it"
            told.append(f"{one.name} is {now} now, and for the next boot {by}: {one.why}")
    if found.container:
        return told
    told += _selinux(found)
    loaded = {word.replace("-", "_") for word in re.findall(r"(?m)^\s*([A-Za-z0-9_-]+)", found.loads)}
    loaded |= {word.replace("-", "_") for line in found.modprobes.splitlines() for word in line.split()}
    loaded |= {
        name for word in found.cmdline.split() if word.startswith("modules_load=") for name in word[13:].replace("-", "_").split(",")
    }
    for one in MODULES:
        if one.name not in found.modules:
            continue
        if kernel in found.provides and one.name not in found.provides[kernel]:
            told.append(f"the module {one.name} is loaded now, and kernel {kernel} does not have it: {one.why}")
        elif one.name not in loaded:
            told.append(f"the module {one.name} is loaded now, and nothing in modules-load.d loads it at the next boot: {one.why}")
    return told


def _selinux(found: NextBoot) -> Iterator[str]:
    """selinux(8): /etc/selinux/config, and the kernel's command line before it."""
    now, boot = found.selinux
    words = found.cmdline.split()
    if now != "1" and boot == "enforcing" and not {"selinux=0", "enforcing=0"} & {*words}:
        is_now = "permissive" if now == "0" else "off"
        yield f"SELinux is {is_now} now, and the next boot enforces it (/etc/selinux/config): kubelet, runtime and pods may be denied files"


def lost(before: NextBoot, after: NextBoot, *, with_pods: bool) -> list[str]:
    """What pods had before a boot and do not have after it. `with_pods`: a pod with a network of its own has started since; without one,
    what the network plugin sets for its first pod is not missed."""
    names = {one.name: one.why for one in (*SYSCTLS[:4],)}
    return [
        f"{name} was {before.sysctls[name]} before the boot, and is {after.sysctls.get(name, 'gone')}: {why}"
        for name, why in names.items()
        if before.sysctls.get(name) == "1" and after.sysctls.get(name) != "1" and (with_pods or boot_sysctl(after, name) is not None)
    ]


def parse(one: Mapping[str, Sequence[str]], many: Mapping[str, Sequence[Sequence[str]]], text: object) -> NextBoot:
    """From the records of a node; `text` decodes a field. Raises what `text` raises, IndexError and ValueError."""
    assert callable(text)

    def first(name: str) -> str:
        return str(text(one[name][0])) if name in one else ""

    return NextBoot(
        container="container" in one,
        files=tuple(
            (str(text(fields[0])), str(text(fields[1])) if fields[1:] and fields[1] else "") for fields in many.get("sysctlfile", ())
        ),
        sysctls={fields[0]: " ".join(str(text(fields[1])).split()) for fields in many.get("sysctl", ())},
        cmdline=first("cmdline"),
        kconfig=first("kconfig"),
        loader=tuple(first("loader").splitlines()),
        modules=frozenset(fields[0] for fields in many.get("module", ())),
        loads=first("loads"),
        modprobes=first("modprobes"),
        provides={str(text(fields[0])): frozenset(str(text(fields[1])).split()) for fields in many.get("provides", ())},
        fstab=first("fstabtext") if "fstabtext" in one else None,
        swaps=int(one["swaps"][0] or 0) if "swaps" in one else 0,
        swap_units=first("swapunits"),
        zram=first("zram"),
        mounts=tuple(Mounted(*(str(text(part)) for part in fields)) for fields in many.get("mount", ())),
        cgroup=int(one["cgroup"][0]) if "cgroup" in one else 0,
        systemd=first("systemd"),
        selinux=(first("enforces").strip(), first("selinux").strip()),
    )
