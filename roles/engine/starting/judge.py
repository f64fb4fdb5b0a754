"""What stands in the way of the next start, and of new pods: a node's answer held against its needs. Pure.

A fact that the node did not answer is not known, and is no obstacle. Sources as in table.py; k8s.io/client-go/tools/clientcmd
(validation.go: a kubeconfig's files must be there); pkg/kubelet/cm (validateSystemRequirements, enforceNodeAllocatableCgroups);
pkg/kubelet/apis/config/validation (FailCgroupV1); cmd/kubelet/app/server.go (run: swap); pkg/kubelet/oom (/dev/kmsg);
cadvisor's inotify watcher; pkg/kubelet/kubelet_node_status.go (validateNodeIP).
"""

from __future__ import annotations

import ipaddress
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from shlex import quote
from typing import Final

from roles.engine.bounds import at_epoch, digits, read_json
from roles.engine.certificates import Certificate, CertificateError, parse_certificates
from roles.engine.editing import FormatError, yaml_text
from roles.engine.harmless import one_line
from roles.engine.kubelet import allocatable
from roles.engine.starting import cri
from roles.engine.starting.model import Cause, Holds, Needs, Obstacle, PathNeed, PortNeed, StartFacts, Stops
from roles.engine.starting.needs import PLAIN_CHECKPOINTS, RECORDS, UNIT_STATE
from roles.engine.starting.table import KUBELET
from roles.engine.table import NO_SIGN
from roles.engine.transaction.by_hand import RESOLVERS, bring_resolver, restart_runtime

#: MiB and inodes that a start needs; MiB that the record of a change needs, which the change itself reserves before it begins.
LEAST_MIB: Final = 16
LEAST_OF_RECORD: Final = 0.25
LEAST_INODES: Final = 64
# Threads that a kubelet and the programs around it start at once.
_THREADS = 64
# The kernel accepts no more for a cgroup (kernel/cgroup/pids.c: PIDS_MAX; linux/threads.h: PID_MAX_LIMIT on 64 bits).
_MOST_PIDS = 4194304
# Bytes of a checkpoint that are read.
_MOST_STATE = 65536
_STATIC = "static"
_NEW_STATE = "drain the node, then `rm {path}`: the kubelet makes a new one"
_V1_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory")
_V2_CONTROLLERS = ("cpu", "memory")
# RuntimeConfig must answer from this minor of the kubelet on (KEP-4033).
_NEEDS_RUNTIME_CONFIG = 37
_ANY = ("0.0.0.0", "::", "")  # noqa: S104 - what others listen on
_KINDS = {
    Holds.file: ("file",),
    Holds.certificates: ("file",),
    Holds.identity: ("file",),
    Holds.directory: ("directory",),
    Holds.anything: ("file", "directory"),
    Holds.program: ("file",),
    Holds.socket: ("socket",),
    Holds.device: ("device",),
    Holds.written: ("directory",),
    Holds.existing: ("file", "directory", "socket", "device", "other"),
}
#: Files that may be empty.
_MAY_BE_EMPTY = ("--token-auth-file", "--cloud-config", "--authorization-policy-file", "--allow-metric-labels-manifest", "resolvConf")


class _Made:
    """Obstacles of one host and component."""

    def __init__(self, host: str, component: str) -> None:
        self.host, self._component = host, component

    def of(self, component: str) -> _Made:
        return _Made(self.host, component)

    def __call__(
        self, cause: Cause, stops: Stops, subject: str, why: str, way_out: str, value: str = "", needed: str = "", *commands: str
    ) -> Obstacle:
        subject, value, needed, why, way_out = map(one_line, (subject, value, needed, why, way_out))
        # A command that one line cannot show as it is would be another one.
        plain = tuple(one for one in commands if one_line(one) == one)
        return Obstacle(self.host, self._component, cause, stops, subject, value, needed, why, way_out, plain)


def judge(host: str, needs: Needs, facts: StartFacts) -> list[Obstacle]:
    """The obstacles of a kubelet and of components of its node, those that keep something from its start first."""
    made = _Made(host, KUBELET)
    found = [obstacle for rule in RULES for obstacle in rule(made, needs, facts)]
    order = list(Stops)
    return sorted(dict.fromkeys(found), key=lambda one: order.index(one.stops))


def _unit(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    if (state := str(needs.settings.get(UNIT_STATE))).startswith("masked"):
        runtime = " --runtime" if state == "masked-runtime" else ""
        command = f"systemctl unmask{runtime} {needs.unit}"
        why = f"{needs.unit} is masked: systemd starts it no more"
        yield made(Cause.unit, Stops.start, needs.unit, why, f"`{command}`", state, "not masked", command)


def _requires(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    """systemd starts no unit of which one that it requires is not there (systemd.unit(5), Requires=)."""
    for unit, state in facts.requires.items():
        why = f"{needs.unit} requires {unit}, which is {state}"
        way_out = f"restore {unit}, or take it out of {needs.unit} (`systemctl cat {needs.unit}`; then `systemctl daemon-reload`)"
        yield made(Cause.unit, Stops.start, unit, why, way_out, state, "loaded")


def _runs(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    """containerd starts each container through its shim, and that through runc (containerd's runtime v2)."""
    for program in (name for name, here in facts.runs.items() if not here):
        why = f"the container runtime starts containers with {program}, which is no program on the node"
        yield made(Cause.file, Stops.pods, program, why, "install it again (packages containerd and runc)")


def _tunables(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    protects = needs.settings.get("protectKernelDefaults") is True
    for tunable in needs.tunables:
        value, writable = facts.tunables.get(tunable.name, (tunable.value, True))
        if value == tunable.value or not (protects or (not writable and not needs.settings.get("KubeletInUserNamespace"))):
            continue
        why = "protectKernelDefaults, and" if protects else "the kubelet cannot write it, and"
        yield made(
            Cause.tunable, Stops.start, tunable.name, f"{why} {tunable.name} is {value} (needs {tunable.value})",
            f"`sysctl -w {tunable.name}={tunable.value}`, and in /etc/sysctl.d, so that it stays", str(value), str(tunable.value),
            f"sysctl -w {tunable.name}={tunable.value}",
        )  # fmt: skip


def _paths(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    for need in needs.paths:
        fact, own = facts.paths.get(need.path), made.of(need.component)
        if fact is None or not need.named_by or need.named_by == "--bootstrap-kubeconfig" or _replaced_identity(need):
            continue
        if need.holds is Holds.written:
            yield from _written(own, need, facts)
            continue
        names, out = f"{need.named_by} names {need.path}", _elsewhere(need, facts)
        if not fact.there:
            why = f"{names}, which does not exist"
            yield own(Cause.file, need.stops, need.path, why, out, "none", need.holds, *_bring_back(need))
        elif fact.kind not in _KINDS[need.holds]:
            yield own(
                Cause.file, need.stops, need.path, f"{names}, which is {_called(fact.kind)}, not a {need.holds}", out,
                fact.kind, need.holds,
            )  # fmt: skip
        elif need.holds is Holds.program and not fact.executable:
            yield own(
                Cause.file, need.stops, need.path, f"{names}, which cannot be executed", f"`chmod +x {need.path}`", "no x", "program",
                f"chmod +x {quote(need.path)}",
            )  # fmt: skip
        elif fact.empty and _must_have_content(need):
            yield own(Cause.file, need.stops, need.path, f"{names}, which is empty", "restore it", "0 bytes", need.holds)
        elif need.holds is Holds.certificates and need.path in facts.pems and not _certificates(facts.pems[need.path]):
            yield own(Cause.certificate, need.stops, need.path, f"{names}, which has no certificate", "restore it", "none", "certificates")
        elif need.dates and need.holds is Holds.certificates:
            yield from _expired(own, need, facts)


def _must_have_content(need: PathNeed) -> bool:
    """A disk that was full, or power that failed, leaves files without a byte. A volume of type File may be one."""
    of_unit = "FileNotEmpty= of " in need.named_by
    row = need.named_by.startswith("--") or ("/" not in need.named_by and " " not in need.named_by)
    return need.holds in (Holds.file, Holds.identity) and (of_unit or (row and need.named_by not in _MAY_BE_EMPTY))


def _replaced_identity(need: PathNeed) -> bool:
    """The identity of a kubelet has its own rule."""
    return need.component == KUBELET and need.holds is Holds.identity


def _called(kind: str) -> str:
    return f"a {kind}" if kind != "other" else "something else"


def _elsewhere(need: PathNeed, facts: StartFacts) -> str:
    """Files of the same use that are there."""
    if need.named_by == "resolvConf":
        there = [path for path in RESOLVERS if path != need.path and (fact := facts.paths.get(path)) and fact.kind == "file"]
        return f"restore it, or set resolvConf to a file that exists ({', '.join(there)})" if there else "restore it"
    if need.holds is Holds.socket:
        return f"start what listens there (`systemctl start containerd`), or correct {need.named_by}"
    return f"restore it, or correct {need.named_by}"


def _bring_back(need: PathNeed) -> tuple[str, ...]:
    """Commands for a path that is gone, if there is something to make it of."""
    if need.named_by == "resolvConf":
        return bring_resolver(need.path)
    return _restarted(need.path) if need.holds is Holds.socket else ()


def _restarted(socket: str) -> tuple[str, ...]:
    return restart_runtime(posixpath.basename(socket).removesuffix(".sock"))


def _written(made: _Made, need: PathNeed, facts: StartFacts) -> Iterator[Obstacle]:
    fact, space = facts.paths[need.path], facts.space.get(need.path)
    names = f"{need.path} ({need.named_by})"
    if fact.there and fact.kind != "directory":
        yield made(Cause.file, need.stops, need.path, f"{names} is {_called(fact.kind)}, not a directory", "move it away", fact.kind)
    elif not (fact.writable if fact.there else fact.makeable):
        way_out = "see `findmnt -T` and the kernel's log for why; `mount -o remount,rw` once its disk is well"
        yield made(
            Cause.read_only, need.stops, need.path, f"{names} cannot be written: its file system is read-only", way_out, "ro", "rw",
            f'mount -o remount,rw "$(stat -L -c %m {quote(need.path)})"',
        )  # fmt: skip
    elif space is not None and space[0] < (least := LEAST_OF_RECORD if need.path == RECORDS else LEAST_MIB):
        free = f"{space[0]:.3g}"
        why = f"the file system of {names} has {free} MiB left (needs {least:g})"
        yield made(Cause.disk, need.stops, need.path, why, f"make room there (`df -h {need.path}`)", free, f"{least:g}")
    elif space is not None and space[1] is not None and space[1] < LEAST_INODES:
        why = f"the file system of {names} has {space[1]} inodes left (needs {LEAST_INODES})"
        yield made(Cause.disk, need.stops, need.path, why, f"remove files there (`df -i {need.path}`)", str(space[1]), str(LEAST_INODES))


def _certificates(pem: bytes) -> list[Certificate]:
    try:
        return parse_certificates(pem)
    except CertificateError:
        return []


def _expiry(pem: bytes, facts: StartFacts) -> datetime | None:
    """When the first of these certificates expired; None if it has not, or if that is not known."""
    first = next(iter(_certificates(pem)), None)
    if first is None or not facts.epoch or first.left(at_epoch(facts.epoch)) > 0:
        return None
    return first.not_after


def _expired(made: _Made, need: PathNeed, facts: StartFacts) -> Iterator[Obstacle]:
    if (end := _expiry(facts.pems.get(need.path, b""), facts)) is not None:
        why = f"the certificate in {need.path} ({need.named_by}) expired on {end:%Y-%m-%d}"
        way_out = "renew it with the tool that made it (`kubeadm certs renew`, see `kubeadm certs check-expiration`)"
        yield made(Cause.certificate, need.stops, need.path, why, way_out, f"{end:%Y-%m-%d}")


def _kubeconfigs(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    """A component's kubeconfig: the files that it names must be there, and its certificate valid."""
    for need in needs.paths:
        if need.holds is Holds.identity and not _replaced_identity(need):
            for why, cause in _identity_problems(need, facts):
                yield made.of(need.component)(
                    cause, need.stops, need.path, f"{need.named_by}: {why}", "renew or restore it (`kubeadm certs renew`)"
                )


def _identity_problems(need: PathNeed, facts: StartFacts) -> Iterator[tuple[str, Cause]]:
    """Why a kubeconfig that exists is no valid identity."""
    names = facts.names.get(need.path, {})
    for key, path in names.items():
        fact = facts.paths.get(path)
        if fact is not None and fact.kind != "file":
            yield f"{need.path} names the {key} {path}, which does not exist", Cause.file
        elif fact is not None and (fact.empty or (key == "client-certificate" and not _certificates(facts.pems.get(path, b"x")))):
            yield f"{need.path} names the {key} {path}, which {'is empty' if fact.empty else 'has no certificate'}", Cause.file
    pem = facts.pems.get(names.get("client-certificate", need.path), b"")
    if (end := _expiry(pem, facts)) is not None:
        yield f"its client certificate ({names.get('client-certificate', need.path)}) expired on {end:%Y-%m-%d}", Cause.certificate


def _identity(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    """The kubelet's own: a kubeconfig that is valid, or else a bootstrap kubeconfig (pkg/kubelet/certificate/bootstrap)."""
    need = next((one for one in needs.paths if _replaced_identity(one)), None)
    fact = facts.paths.get(need.path) if need else None
    if need is None or fact is None:
        return
    bootstrap = next((one.path for one in needs.paths if one.named_by == "--bootstrap-kubeconfig"), "")
    there = facts.paths.get(bootstrap)
    problems = (
        [(f"{need.path} ({need.named_by}) {'is empty' if fact.kind == 'file' else 'does not exist'}", Cause.file)]
        if fact.kind != "file" or fact.empty
        else list(_identity_problems(need, facts))
    )
    if problems and not (there is not None and there.kind == "file"):
        why = "; ".join(text for text, _ in problems)
        more = f", and its bootstrap kubeconfig {bootstrap} does not exist" if bootstrap else ", and it has no bootstrap kubeconfig"
        way_out = "restore it, or give the node a new one (`kubeadm join` again; `kubeadm kubeconfig user` on a control-plane node)"
        yield made(Cause.identity, Stops.start, need.path, why + more, way_out)
        return
    pem = facts.pems.get(facts.names.get(need.path, {}).get("client-certificate", need.path), b"")
    first = next(iter(_certificates(pem)), None)
    name = (first.common_name if first else "").removeprefix("system:node:")
    if first and first.common_name.startswith("system:node:") and name != needs.node_name:
        why = f"its certificate is for the node {name}, and it would register as {needs.node_name}: the host name is another one now"
        way_out = f"restore the host name, or set --hostname-override={name}"
        yield made(Cause.identity, Stops.start, "node name", why, way_out, needs.node_name, name)


#: Exit statuses of curl(1) that say for certain that a kubelet does not reach its API server either.
_UNREACHED: Final = {
    6: "its name does not resolve",
    7: "nothing accepts connections there",
    28: "it does not answer within 5 s",
    60: "its certificate is not valid by the CA there",
}


def _api(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    """A kubelet that does not reach the API server of its kubeconfig starts, and its node is NotReady (pkg/kubelet/kubelet_node_status.go).
    The one that runs has read the file when it started."""
    code, url = facts.api or (0, "")
    if (wrong := _UNREACHED.get(code)) and needs.reaches:
        why = f"{needs.reaches} (--kubeconfig) names {url}: {wrong}"
        yield made(Cause.api, Stops.start, needs.reaches, why, "correct the file, or repair what is there", url)


def _pairs(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    """A kubelet makes its own serving certificate if it has neither file, and ends if it has one of them (client-go/util/cert)."""
    by_name = {one.named_by: one.path for one in needs.paths}
    folder = by_name.get("--cert-dir")
    if folder is None or "tlsCertFile" in by_name or needs.settings.get("serverTLSBootstrap") is True:
        return
    files = [facts.paths.get(f"{folder}/kubelet.{end}") for end in ("crt", "key")]
    if None not in files and len({one.there for one in files if one}) == 2:
        missing = next(f"{folder}/kubelet.{end}" for end, one in zip(("crt", "key"), files, strict=True) if one and not one.there)
        why = f"{missing} does not exist, and the other file of its serving certificate does"
        yield made(
            Cause.file, Stops.start, missing, why, f"remove both (`rm {folder}/kubelet.crt {folder}/kubelet.key`): it makes new ones",
            "", "", f"rm -f {quote(f'{folder}/kubelet.crt')} {quote(f'{folder}/kubelet.key')}",
        )  # fmt: skip


def _keys(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    """Each certificate and its key belong together: after half a renewal the process with the old ones runs on, and the next one ends, or
    is nobody to the API."""
    for need in needs.keys:
        row, own = need.row, made.of(need.row.component)
        yield from _one_pair(own, f"{need.key} ({row.key})", need.key, f"{need.certificate} ({row.certificate})", need.certificate, facts)
        if row.alone and (count := len(_certificates(facts.pems.get(need.certificate, b"")))) > 1:
            why = f"{need.certificate} ({row.certificate}) has {count} certificates, and must have one"
            yield own(Cause.certificate, Stops.start, need.certificate, why, "name a file with the signing CA alone", str(count), "1")
    for path in needs.paths:
        names = facts.names.get(path.path, {})
        if path.holds is Holds.identity and (key := names.get("client-key")) and (certificate := names.get("client-certificate")):
            yield from _one_pair(made.of(path.component), f"{key} ({path.path})", key, certificate, certificate, facts)


def _one_pair(made: _Made, key: str, key_path: str, certificate: str, path: str, facts: StartFacts) -> Iterator[Obstacle]:
    """`key`, `certificate`: with who names them."""
    certificates, halves = _certificates(facts.pems.get(path, b"")), facts.keys.get(key_path)
    if halves is not None and halves.unread:
        yield made(Cause.unproven, Stops.note, key_path, f"{NO_SIGN}that {key} is the key of {certificate}: {halves.unread}", "")
    elif certificates and halves is not None and halves.public_keys and certificates[0].public_key not in halves.public_keys:
        why = f"the key in {key} is not that of the certificate in {certificate}"
        yield made(Cause.key, Stops.start, key_path, why, "restore the one that fits, or renew both (`kubeadm certs renew`)")


def _providers(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    """Each credential provider of the configuration is a program in the directory (pkg/credentialprovider/plugin)."""
    if facts.providers is None or facts.programs is None:
        return
    try:
        listed = yaml_text.load(facts.providers.encode()).get("providers") or ()
        names = [str(one["name"]) for one in listed if isinstance(one, dict) and one.get("name")]
    except (FormatError, TypeError):
        return
    for name in names:
        if name not in facts.programs:
            why = f"{needs.provider_config} names the credential provider {name}, which is no program in {needs.provider_folder}"
            yield made(Cause.file, Stops.start, f"{needs.provider_folder}/{name}", why, "restore it, or take it out of the file")


def swap_obstacles(host: str, settings: Mapping[str, object], areas: int | None, cgroup2: bool | None) -> Iterator[Obstacle]:
    """Swap that keeps a kubelet from its start. `settings` are its failSwapOn and memorySwap.swapBehavior (None: the default)."""
    made = _Made(host, KUBELET)
    if areas and settings.get("failSwapOn") is not False:
        yield made(
            Cause.swap, Stops.start, "failSwapOn",
            f"/proc/swaps lists {areas} area(s): with failSwapOn a kubelet does not start while swap is on",
            "set failSwapOn=false, or turn swap off first (`swapoff -a`, and its line in /etc/fstab)", str(areas), "0", "swapoff -a",
        )  # fmt: skip
    if settings.get("memorySwap.swapBehavior") == "LimitedSwap" and cgroup2 is False:
        yield made(
            Cause.swap, Stops.start, "memorySwap.swapBehavior",
            "memorySwap.swapBehavior LimitedSwap: the node has cgroup v1, and a kubelet does not start so (`only supported with cgroupv2`)",
            "set memorySwap.swapBehavior=NoSwap, or boot the node with cgroup v2 (systemd.unified_cgroup_hierarchy=1)", "v1", "v2",
        )  # fmt: skip


def _swap(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    return swap_obstacles(made.host, needs.settings, facts.swap, facts.cgroup2)


def _cgroups(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    if facts.cgroup2 is False and needs.settings.get("failCgroupV1") is True:
        why = "the node has cgroup v1, and with failCgroupV1 a kubelet does not start so"
        yield made(Cause.cgroups, Stops.start, "failCgroupV1", why, "set failCgroupV1=false, or boot the node with cgroup v2", "v1", "v2")
    wanted = _V2_CONTROLLERS if facts.cgroup2 else _V1_CONTROLLERS
    if facts.controllers is not None and (missing := [name for name in wanted if name not in facts.controllers]):
        why = f"the cgroup controllers {', '.join(missing)} are not there"
        yield made(
            Cause.cgroups, Stops.start, "controllers", why, "enable them (the kernel's command line: `cgroup_enable=memory`), and reboot"
        )
    for name, there in facts.cgroups.items():
        if not there:
            group = needs.cgroups.get(name, "")
            by = "" if name == "cgroupRoot" else "enforceNodeAllocatable needs "
            why = f"{by}the cgroup /{group} ({name}){', which' if by else ''} does not exist"
            way_out = f"create it (a slice of systemd), or {'take it out of enforceNodeAllocatable' if by else 'correct cgroupRoot'}"
            yield made(Cause.cgroups, Stops.start, name, why, way_out, "none", group)


def _checkpoints(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    """What the kubelet has assigned, in files of its own: it ends if one cannot be read, has another policy, or other CPUs."""
    plain = [one.path for one in needs.paths if posixpath.basename(one.path) in PLAIN_CHECKPOINTS]
    read = {path: _state(text) for path, text in facts.checkpoints.items() if path in needs.checkpoints and len(text) <= _MOST_STATE}
    empty = [path for path in plain if (fact := facts.paths.get(path)) is not None and fact.kind == "file" and fact.empty]
    for path in (*(path for path, state in read.items() if state is None), *empty):
        why = f"{path}, where it keeps what its pods have, is {'cut off' if facts.checkpoints.get(path) else 'empty'}"
        yield made(Cause.checkpoint, Stops.start, path, why, _NEW_STATE.format(path=path))
    for path, state in read.items():
        wanted = needs.checkpoints[path]
        if state and (has := state.get("policyName")) != wanted:
            why = f"{path} has the policy {has}, and its configuration {wanted}"
            yield made(Cause.checkpoint, Stops.start, path, why, _NEW_STATE.format(path=path), str(has), wanted)
        elif state and has == _STATIC and "strict-cpu-reservation" not in str(needs.settings.get("cpuManagerPolicyOptions")):
            yield from _other_cpus(made, path, state, facts)
    yield from _offline(made, needs, facts)


def _state(text: str) -> Mapping[str, object] | None:
    """None if a kubelet cannot read it."""
    try:
        found = read_json(text)
    except ValueError:
        return None
    return found if isinstance(found, Mapping) else None


def _other_cpus(made: _Made, path: str, state: Mapping[str, object], facts: StartFacts) -> Iterator[Obstacle]:
    """pkg/kubelet/cm/cpumanager/policy_static.go, validateState."""
    default, entries = state.get("defaultCpuSet"), state.get("entries") or {}
    if facts.cpus is None or not default or not isinstance(entries, Mapping) or state.get("podEntries"):
        return
    try:
        sets = [str(one) for containers in entries.values() for one in containers.values()]
        known = frozenset[int]().union(*(allocatable.cpu_set(one) for one in (str(default), *sets)))
    except (ValueError, AttributeError):
        return
    if known != facts.cpus:
        has, online = _cpus(known), _cpus(facts.cpus)
        why = f"{path} is of the CPUs {has}, and the node has {online}"
        yield made(Cause.checkpoint, Stops.start, path, why, f"bring those CPUs back, or {_NEW_STATE.format(path=path)}", has, online)


def _offline(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    """cmd/kubelet/app/server.go, getReservedCPUs."""
    text = str(needs.settings.get("reservedSystemCPUs") or "")
    try:
        missing = allocatable.cpu_set(text) - (facts.cpus or frozenset())
    except ValueError:
        return  # its binary refuses it
    if facts.cpus is not None and missing:
        why = f"reservedSystemCPUs is {text}, and the node has no CPU {_cpus(missing)}"
        way_out = "bring them back (/sys/devices/system/cpu/cpuN/online), or correct reservedSystemCPUs"
        yield made(Cause.limit, Stops.start, "reservedSystemCPUs", why, way_out, _cpus(facts.cpus), text)


def _cpus(found: frozenset[int]) -> str:
    """As Linux writes a list of CPUs."""
    starts = sorted(one for one in found if one - 1 not in found)
    ends = sorted(one for one in found if one + 1 not in found)
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def _listening(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    for need in needs.ports:
        for one in facts.listeners:
            if one.port == need.port and one.pid != facts.main_pid and _overlap(need, one.address):
                who = f"the process {one.pid} ({one.name})" if one.pid else "another process"
                why = f"{need.named_by}: {who} listens on port {need.port} already"
                way_out = f"stop it, or choose another port (`ss -lntp sport = :{need.port}`)"
                kill = (f"kill {one.pid}",) if one.pid else ()
                yield made.of(need.component)(Cause.port, Stops.start, str(need.port), why, way_out, one.name, "free", *kill)
                break


def _overlap(need: PortNeed, address: str) -> bool:
    return need.address in _ANY or address in _ANY or need.address == address


def _addresses(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    if facts.addresses is None:
        return
    for text in needs.addresses:
        try:
            address = ipaddress.ip_address(text.strip())
        except ValueError:
            continue  # its binary refuses it
        if not address.is_unspecified and str(address) not in facts.addresses:
            why = f"--node-ip {address} is on no interface of the node: the kubelet would not report its status"
            yield made(Cause.address, Stops.start, str(address), why, "restore the address (`ip address`), or correct --node-ip")


def _limits(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    if facts.tasks is not None and facts.tasks[0] + _THREADS > facts.tasks[1]:
        why = f"{facts.tasks[0]} threads run on the node, and the kernel allows {facts.tasks[1]}"
        way_out = "end what starts them, or raise kernel.pid_max and kernel.threads-max"
        yield made(Cause.limit, Stops.start, "kernel.pid_max", why, way_out, str(facts.tasks[1]))
    if facts.inotify is not None:
        now, most = facts.inotify
        # What is used now is free for the same processes after a restart; a limit below it is not.
        stops = Stops.start if now > most else Stops.note
        why = f"root has {now} inotify instances, and fs.inotify.max_user_instances is {most}: a kubelet cannot watch its files"
        yield made(
            Cause.limit, stops, "fs.inotify.max_user_instances", why, "`sysctl -w fs.inotify.max_user_instances=8192`", str(most), str(now),
            "sysctl -w fs.inotify.max_user_instances=8192",
        )  # fmt: skip


def _processes(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    """What a pod may have of the node's processes (pkg/kubelet/stats/pidlimit)."""
    text = str(needs.settings.get("podPidsLimit"))
    limit = digits(text) or 0
    if limit > _MOST_PIDS:
        why = f"podPidsLimit is {limit}, and the kernel accepts at most {_MOST_PIDS} for a cgroup"
        yield made(Cause.limit, Stops.pods, "podPidsLimit", why, "set a smaller podPidsLimit", text, str(_MOST_PIDS))
    elif facts.tasks is not None and limit >= facts.tasks[1]:
        why = f"podPidsLimit is {limit}, and the node has at most {facts.tasks[1]} processes: one pod may take them all"
        way_out = "set a smaller podPidsLimit, or raise kernel.pid_max and kernel.threads-max"
        yield made(Cause.limit, Stops.note, "podPidsLimit", why, way_out, text, str(facts.tasks[1]))


def _runtime(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    health = facts.runtime
    if health is None or not health.asked:
        return
    see, again = "see `systemctl status containerd` (or crio) and its journal", _restarted(needs.socket)
    if health.version == cri.NO_ANSWER or health.config == cri.NO_ANSWER:
        why = f"the container runtime at {needs.socket} gives no answer"
        yield made(Cause.runtime, Stops.start, needs.socket, why, see, "", "", *again)
    elif health.version != cri.OK:
        why = f"the container runtime at {needs.socket} does not serve the CRI v1 (gRPC status {health.version})"
        way_out = "upgrade it, or enable its CRI plugin (disabled_plugins in containerd's config.toml)"
        yield made(Cause.runtime, Stops.start, needs.socket, why, way_out)
    elif health.config not in (cri.OK, cri.UNIMPLEMENTED, ""):
        why = f"{health.name} answers RuntimeConfig with gRPC status {health.config}"
        yield made(Cause.runtime, Stops.start, needs.socket, why, see)
    elif health.config == cri.UNIMPLEMENTED:
        driver = needs.settings.get("cgroupDriver")
        if needs.minor is not None and needs.minor >= _NEEDS_RUNTIME_CONFIG:
            why = f"{health.name} does not report its cgroup driver (CRI RuntimeConfig), which a kubelet 1.{needs.minor} needs"
            yield made(Cause.runtime, Stops.start, needs.socket, why, "upgrade it (containerd 2.0, CRI-O 1.28)")
        elif health.drivers and driver not in health.drivers:
            has = " and ".join(sorted(health.drivers))
            why = f"cgroupDriver is {driver}, and {health.name} has {has}"
            yield made(Cause.runtime, Stops.pods, "cgroupDriver", why, "set both to the same on a drained node", str(driver), has)


def _new_pods(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    health = facts.runtime
    for condition, stops, cause in (("RuntimeReady", Stops.pods, Cause.runtime), ("NetworkReady", Stops.network, Cause.network)):
        holds, text = health.conditions.get(condition, (True, "")) if health else (True, "")
        if health and not holds:
            way_out = (
                "see its journal"
                if stops is Stops.pods
                else "see the pods of the network plugin on this node, and its configuration (/etc/cni/net.d)"
            )
            yield made(cause, stops, condition, f"{health.name} says {condition}=false ({text[:300]})", way_out, "false", "true")
    if health and health.plugins is not None and health.network:
        for name in sorted(health.wanted_plugins - health.plugins):
            why = f"{health.network} names the plugin {name}, which is no program in {', '.join(health.plugin_folders)}"
            yield made(
                Cause.network, Stops.network, name, why, "install it again (package containernetworking-plugins, or the network's own pods)"
            )
    if health and health.sandbox and health.has_sandbox is False:
        why = f"the image of sandboxes, {health.sandbox}, is not on the node: it is pulled for the next new pod"
        yield made(Cause.sandbox, Stops.note, health.sandbox, why, f"`crictl pull {health.sandbox}` shows whether its registry answers")


def _images(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    """A change of a manifest, and a boot, create its containers again, each from its image (pkg/kubelet/images/image_manager.go)."""
    for need in needs.images:
        own, image = made.of(need.component), need.image
        if facts.images.get(image) is False:
            pulled = "is never pulled" if need.policy == "Never" else f"would be pulled while no {need.component} runs"
            why = f"its image {image} is not on the node, and {pulled}"
            yield own(Cause.image, Stops.start, image, why, f"`crictl pull {image}` there first, or import it")
        elif need.policy == "Always" and image in facts.images:
            why = f"its image {image} is pulled at each start (imagePullPolicy: Always): without its registry it does not start"
            yield own(Cause.image, Stops.note, image, why, "set imagePullPolicy: IfNotPresent", need.policy, "IfNotPresent")


def _dns(made: _Made, needs: Needs, facts: StartFacts) -> Iterator[Obstacle]:
    for need in needs.paths:
        servers = facts.nameservers.get(need.path, ()) if need.named_by == "resolvConf" else ()
        if servers and all(one.startswith("127.") or one == "::1" for one in servers):
            stub = "systemd-resolved's stub, " if "127.0.0.53" in servers else ""
            why = f"resolvConf {need.path} has only {stub}{', '.join(servers)}: a pod with it asks itself, and CoreDNS finds a loop"
            way_out = "set resolvConf=/run/systemd/resolve/resolv.conf where that exists"
            yield made(Cause.dns, Stops.note, f"nameservers of {need.path}", why, way_out)


Rule = Callable[[_Made, Needs, StartFacts], Iterable[Obstacle]]

#: Every rule, with what it judges: the table in docs/before-a-restart.md.
RULES: Final[tuple[Rule, ...]] = (
    _unit, _requires, _tunables, _paths, _identity, _api, _kubeconfigs, _pairs, _keys, _providers, _swap, _cgroups, _checkpoints,
    _listening, _addresses, _limits, _processes, _runtime, _new_pods, _runs, _images, _dns,
)  # fmt: skip
