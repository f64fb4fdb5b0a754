"""Settings whose effect has a sign of its own, what that sign is, and what it says. Pure; roles/engine/proof/evidence.py reads the signs.

A value in /configz or on a command line is what a process was given. Some functions do not start all the same, and the process runs on: it
logs an error, or nothing. SIGNS is the table of what shows that they work; no_sign.py names what the proof does not look at. A
sign that is missing reverts a change, but for `absent`; one that cannot be read is NOT PROVEN, and the change is kept, but the run
is not all proven. Where nothing in the cluster can show it, there is no sign, and that is no failed proof.

Sources (Kubernetes 1.36): cmd/kubelet/app/server.go (run: rlimit.SetNumFiles and ApplyOOMScoreAdj only log), pkg/kubelet/nodeshutdown,
pkg/kubelet/cm/node_container_manager_linux.go (enforceNodeAllocatableCgroups retries without end), pkg/kubelet/server/server.go,
k8s.io/apiserver/pkg/server/options/audit.go and pkg/server/routes, k8s.io/apiserver/pkg/admission/metrics, pkg/audit/metrics.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from roles.engine.bounds import digits
from roles.engine.certificates import CertificateError, parse_certificates
from roles.engine.harmless import one_line
from roles.engine.kube import amounts
from roles.engine.kube.fields import spec_of, status_of
from roles.engine.kubelet import allocatable
from roles.engine.kubelet.thresholds import shutdown_seconds
from roles.engine.kubelet.values import lookup
from roles.engine.named_paths import API_SERVER, KUBELET, MANAGER, SCHEDULER, paths_in
from roles.engine.proof.node_signs import NodeSigns, Wanted

_ALL: Final = (API_SERVER, MANAGER, SCHEDULER)
# A kubelet's figures for memory are in KiB, and a limit of a cgroup is in pages.
_ROUNDED = 4096
_READ_ONLY_PORT = 10255


@dataclass(frozen=True)
class Found:
    """What a sign shows. `shown`: the setting works; `missing`: it does not; `unknown`: the sign could not be read, or is not there yet
    (`early`); `nothing`: there is nothing here that could show it."""

    kind: Literal["shown", "missing", "unknown", "nothing"]
    text: str
    early: bool = False


def shown(text: str) -> Found:
    return Found("shown", text)


def missing(text: str) -> Found:
    return Found("missing", text)


def unknown(text: str) -> Found:
    return Found("unknown", text)


def nothing(text: str) -> Found:
    return Found("nothing", text)


class Look(Protocol):
    """A changed process, as signs see it. Methods may raise ApiFailure, and None means: not known."""

    program: str
    pid: str
    node_name: str
    address: tuple[str, int]
    #: A kubelet's /configz; {} of a component.
    configuration: Mapping[str, Any]

    @property
    def node(self) -> NodeSigns: ...
    def flag(self, name: str) -> tuple[str, ...]: ...
    def api_node(self) -> Mapping[str, Any]: ...
    def lease_seconds(self) -> int: ...
    def answers(self, path: str) -> bool | None: ...
    def json(self, path: str) -> Mapping[str, Any]: ...
    def text(self, path: str) -> str: ...
    def certificate(self) -> bytes | None: ...
    def aggregated(self) -> Mapping[str, str]:
        """Each API that is registered with a Service, as VERSION.GROUP, and why it does not answer ("": it does)."""
        ...

    def accepts_tls12(self) -> bool | None: ...


Judge = Callable[[Look, Any], Found]


@dataclass(frozen=True)
class OfSetting:
    """`name`: a pattern for the whole name of a kubelet's field (dotted) or of a flag."""

    programs: tuple[str, ...]
    name: str

    def concerns(self, program: str, name: str) -> bool:
        return program in self.programs and re.fullmatch(self.name, name) is not None


@dataclass(frozen=True)
class Sign(OfSetting):
    """`sign`: what shows that it works, for people. `judge` gets the field's value in /configz, or the values of the flag (empty: not
    given). `needs`: what it reads of the node. `absent`: what a missing sign means: the change is reverted, it is NOT PROVEN,
    or nothing here could show it. `waits`: it may come a moment later."""

    sign: str
    judge: Judge
    needs: tuple[str, ...] = ()
    absent: Literal["reverted", "NOT PROVEN", "no sign"] = "reverted"
    waits: bool = False


# ---- what the signs say: kubelet


def _lock(look: Look, value: Any) -> Found:
    wanted = shutdown_seconds(look.configuration)
    held = any(lock.is_kubelets and lock.pid == look.pid for lock in look.node.inhibitors)
    delay = look.node.delay
    if wanted <= 0:
        return missing("it still holds a lock that delays shutdowns") if held else shown("it holds no lock that delays shutdowns")
    if not held:
        waits = "logind does not answer" if delay is None else f"logind waits {delay:g} s"
        return missing(
            f"PID {look.pid} holds no lock that delays a shutdown, so it does not end pods at one ({waits}, {wanted:g} s needed)"
        )
    if delay is None:
        return unknown(f"that logind waits {wanted:g} s for the kubelet's lock: logind did not answer")
    if delay < wanted:
        return missing(f"it holds its lock, but logind waits {delay:g} s only, not {wanted:g} s (InhibitDelayMaxSec)")
    return shown(f"its lock delays shutdowns, logind waits {delay:g} s")


def _allocatable(*resources: str) -> Judge:
    def judge(look: Look, value: Any) -> Found:
        node = look.api_node()
        try:
            planned = allocatable.allocatable(look.configuration, node)
            listed = amounts.listed(status_of(node)["allocatable"])
            now = {name: amounts.units(name, amount) for name, amount in listed.items()}
        except (ValueError, KeyError, TypeError):
            return unknown(f"Allocatable ({', '.join(resources)}): the node's status cannot be read")
        wrong = [
            f"{name} is {now.get(name)}, not {planned[name]}"
            for name in resources
            if name in planned and abs(now.get(name, 0) - planned[name]) >= (_ROUNDED if name == "memory" else 1)
        ]
        if wrong:
            return missing(f"the node's Allocatable is not as configured: {', '.join(wrong)}")
        return shown(f"Allocatable has it ({', '.join(f'{name} {now[name]}' for name in resources if name in now)})")

    return judge


def _pod_limit(look: Look, value: Any) -> Found:
    """The limit of all pods: the node's memory without what is reserved; thresholds of evictions and huge pages do not lower it
    (getNodeAllocatableInternalAbsolute). The cgroup of another driver may be left from before."""
    limits = [limit for text in look.node.pod_limits if (limit := digits(text)) is not None]
    if not limits:
        return unknown("the limit of all pods together (memory limit of kubepods): it cannot be read")
    enforced = "pods" in (look.configuration.get("enforceNodeAllocatable") or ())
    try:
        node = look.api_node()
        reserved = allocatable.reservation({**look.configuration, "evictionHard": {}}, node)["memory"] if enforced else 0
        wanted = int(amounts.listed(status_of(node)["capacity"])["memory"] - reserved)
    except (ValueError, KeyError, TypeError):
        return unknown("the limit of all pods together (memory limit of kubepods): the node's capacity cannot be read")
    if not any(abs(limit - wanted) < _ROUNDED for limit in limits):
        return missing(f"all pods together may use {_memory(max(limits))} (memory limit of kubepods), not {_memory(wanted)}")
    return shown(f"memory limit of kubepods is {_memory(wanted)}")


def _memory(size: int) -> str:
    return amounts.shown("memory", size)


def _lease(look: Look, value: Any) -> Found:
    seconds = look.lease_seconds()
    if seconds != value:
        return missing(f"its Lease has leaseDurationSeconds {seconds}, not {value}")
    return shown(f"its Lease has leaseDurationSeconds {seconds}")


def _isolation(look: Look, value: Any) -> Found:
    there = "ephemeral-storage" in (status_of(look.api_node()).get("capacity") or {})
    if there == (value is not False):
        return shown(f"the node {'has' if there else 'does not have'} ephemeral-storage")
    return missing(f"the node {'still has' if there else 'does not have'} ephemeral-storage in its capacity")


def _read_only(look: Look, value: Any) -> Found:
    ports = look.node.ports
    if not ports:
        return unknown("where it listens: its sockets cannot be read")
    port = int(value or 0)
    if port:
        return shown(f"it listens at {port}") if port in ports else missing(f"it does not listen at {port}")
    return missing(f"it still listens at {_READ_ONLY_PORT}") if _READ_ONLY_PORT in ports else shown(f"{_READ_ONLY_PORT} does not listen")


def _of_process(of: Callable[[NodeSigns], int | None], what: str) -> Judge:
    def judge(look: Look, value: Any) -> Found:
        now = of(look.node)
        if now is None:
            return unknown(f"{what}: it cannot be read")
        return shown(f"{what} is {now}") if now == int(value or 0) else missing(f"{what} of the process is {now}, not {value}")

    return judge


def _endpoint(path: str, default: bool = True) -> Judge:
    """On of a boolean: the path answers 200."""

    def judge(look: Look, value: Any) -> Found:
        wanted, there = _on(value, default), look.answers(path)
        if there is None:
            return unknown(f"whether {path} answers")
        if there == wanted:
            return shown(f"{path} {'answers' if there else 'is off'}")
        return missing(f"{path} {'still answers' if there else 'does not answer'}")

    return judge


def _on(value: Any, default: bool) -> bool:
    if isinstance(value, tuple):
        return str(value[-1]).lower() in ("true", "1", "t") if value else default
    return default if value is None else bool(value)


def anonymous_url(address: tuple[str, int]) -> str:
    host, port = address
    return f"https://{f'[{host}]' if ':' in host else host}:{port}/metrics"


def _anonymous(default: bool) -> Judge:
    def judge(look: Look, value: Any) -> Found:
        status = look.node.anonymous.get(anonymous_url(look.address), 0)
        if status not in (200, 401, 403):
            return unknown(f"how it answers a request without credentials (HTTP {status})")
        wanted = _on(value, default)
        if (status != 401) == wanted:
            return shown(f"a request without credentials gets {status}")
        return missing(f"a request without credentials gets {status}, so anonymous is {'off' if wanted else 'on'}")

    return judge


def _served(look: Look, value: Any) -> Found:
    path = certificate_file(look)
    if not path:
        return nothing("which certificate it serves: no file is named")
    own = _first(look.node.certificates.get(path, ""))
    now = look.certificate()
    if own is None or now is None:
        return unknown(f"that it serves the certificate of {one_line(path)}: {'nothing was served' if own else 'it cannot be read'}")
    if own != now:
        return missing(f"it serves another certificate than that of {one_line(path)}")
    return shown(f"it serves the certificate of {one_line(path)}")


def _first(pem: str) -> bytes | None:
    try:
        return next((one.der for one in parse_certificates(pem.encode())), None)
    except CertificateError:
        return None


def certificate_file(look: Look) -> str:
    """The file with the certificate that a process serves; "" if it is not named."""
    if look.configuration:
        return str(look.configuration.get("tlsCertFile") or "")
    return (paths_in(look.flag("tls-cert-file")) or [""])[-1]


def _tls(look: Look, value: Any) -> Found:
    old = look.accepts_tls12()
    wanted = (value[-1] if isinstance(value, tuple) and value else value) == "VersionTLS13"
    if old is None:
        return unknown("which versions of TLS it accepts")
    if old != wanted:
        return shown(f"it {'accepts' if old else 'refuses'} TLS 1.2")
    return missing(f"it {'still accepts' if old else 'refuses'} TLS 1.2")


def _format(look: Look, value: Any) -> Found:
    line = look.node.log
    if not line:
        return unknown("in which format it logs: it has no line yet")
    # A runtime writes a container's line behind its time, stream and tag.
    said = re.sub(r"^\S+ (?:stdout|stderr) [FP] ", "", line)
    wanted = (value[-1] if isinstance(value, tuple) and value else value) == "json"
    if said.startswith("{") == wanted:
        return shown(f"its last line of log is {'JSON' if wanted else 'text'}")
    return missing(f"its last line of log is {'text' if wanted else 'JSON'}")


# ---- of components


def _grows(look: Look, value: Any) -> Found:
    paths = paths_in(value or ())
    if not paths:
        return shown("its log is the container's own output") if value else shown("no log")
    path = paths[-1]
    inside, outside = look.node.written.get(path, (None, None))
    if path not in look.node.written:
        return nothing(f"that {path} reaches the node: it is in the container's own layer, or in a volume that is lost with the pod")
    if inside is None or outside is None or inside.identity != outside.identity:
        return missing(f"{path} of the process is not the node's own file")
    if not look.flag("audit-policy-file"):
        return missing(f"{path} stays empty: without audit-policy-file no event is logged")
    if outside.size == 0:
        return Found("unknown", f"that {path} grows: it is empty so far", early=True)
    return shown(f"{path} grows on the node ({outside.size} bytes)")


def _webhook(look: Look, value: Any) -> Found:
    if not value:
        return shown("no webhook")
    if not look.flag("audit-policy-file"):
        return missing("without audit-policy-file no event is sent")
    failed = [
        int(float(count)) for count in re.findall(r'^apiserver_audit_error_total\{plugin="webhook"\} (\S+)$', look.text("/metrics"), re.M)
    ]
    if any(failed):
        return missing(f"{sum(failed)} deliveries to the audit webhook have failed")
    return nothing("that the audit webhook gets events: no delivery has failed so far")


def _issuer(look: Look, value: Any) -> Found:
    now = look.json("/.well-known/openid-configuration").get("issuer")
    if not value:
        return nothing("which issuer its tokens have: none is named")
    return (
        shown(f"its tokens' issuer is {one_line(value[0])}") if now == value[0] else missing(f"its tokens' issuer is {one_line(str(now))}")
    )


def _jwks(look: Look, value: Any) -> Found:
    now = look.json("/.well-known/openid-configuration").get("jwks_uri")
    if not value:
        return nothing("which jwks_uri it tells: none is named")
    return shown("it tells this jwks_uri") if now == value[-1] else missing(f"it tells the jwks_uri {one_line(str(now))}")


def _served_groups(look: Look, value: Any) -> Found:
    entries = [item.partition("=")[::2] for one in value or () for item in one.split(",")]
    versions = [
        (name, on.lower() != "false") for name, on in entries if re.fullmatch(r"(?:[a-z0-9.-]+/)?v[0-9]+(?:(?:alpha|beta)[0-9]+)?", name)
    ]
    if not versions or len(versions) < len(entries):
        return nothing("which APIs it serves: only entries GROUP/VERSION are looked at")
    for name, on in versions:
        there = look.answers(f"/apis/{name}" if "/" in name else f"/api/{name}")
        if there is None:
            return unknown(f"whether it serves {name}")
        if there != on:
            return missing(f"it {'still serves' if there else 'does not serve'} {name}")
    return shown(", ".join(f"it {'serves' if on else 'does not serve'} {name}" for name, on in versions))


def _admission(enabled: bool) -> Judge:
    def judge(look: Look, value: Any) -> Found:
        names = [name.strip() for one in value or () for name in one.split(",") if name.strip()]
        seen = set(
            re.findall(r'^apiserver_admission_controller_admission_duration_seconds_count\{name="([^"]*)"', look.text("/metrics"), re.M)
        )
        if not enabled:
            acted = [name for name in names if name in seen]
            if acted:
                return missing(f"admission plugins still act: {', '.join(map(one_line, acted))}")
            return nothing("that the admission plugins are off: they have not acted since the start")
        idle = [name for name in names if name not in seen]
        if idle:
            return nothing(f"that these admission plugins act: {', '.join(map(one_line, idle))} (no request for them since the start)")
        return shown(f"admission plugins act: {', '.join(map(one_line, names))}")

    return judge


def _leader(look: Look, value: Any) -> Found:
    """Whether this process leads, or can: by the Lease that it names."""
    name = (look.flag("leader-elect-resource-name") or (look.program,))[-1]
    space = (look.flag("leader-elect-resource-namespace") or ("kube-system",))[-1]
    spec = spec_of(look.json(f"/apis/coordination.k8s.io/v1/namespaces/{space}/leases/{name}"))
    holder = str(spec.get("holderIdentity") or "")
    if holder.startswith(f"{look.node_name}_"):
        return shown(f"an instance on this node holds the Lease {space}/{name}, for {spec.get('leaseDurationSeconds')} s")
    if not holder:
        return Found("unknown", f"that it can lead: nobody holds the Lease {space}/{name}", early=True)
    return nothing(f"that it can lead: another instance holds the Lease {space}/{name}")


def _aggregated(look: Look, value: Any) -> Found:
    """Each aggregated API (an APIService with a Service) answers through this API server."""
    found = look.aggregated()
    if not found:
        return nothing("that aggregated APIs are reached: none is registered")
    silent = {name: why for name, why in found.items() if why}
    if silent:
        name, why = next(iter(silent.items()))
        return missing(f"aggregated APIs do not answer through it: {', '.join(map(one_line, silent))} ({name}: {why})")
    return shown(f"aggregated APIs answer through it: {', '.join(map(one_line, found))}")


# ---- the tables

_KUBELET = (KUBELET,)
_API = (API_SERVER,)
SIGNS: Final = (
    Sign(
        _KUBELET,
        "shutdownGracePeriod(?:CriticalPods|ByPodPriority)?",
        "the new process holds a delay lock of logind (/run/systemd/inhibit), and logind waits at least as long (InhibitDelayMaxUSec)",
        _lock,
        # A kubelet that could not start the function does not try again, and it has tried before it was healthy for long enough.
        ("locks",),
    ),
    Sign(_KUBELET, "maxPods|podsPerCore", "pods in the node's Allocatable", _allocatable("pods"), waits=True),
    Sign(
        _KUBELET, "systemReserved|kubeReserved|reservedSystemCPUs", "cpu and memory in the node's Allocatable",
        _allocatable("cpu", "memory"), waits=True,
    ),
    Sign(
        _KUBELET, "systemReserved|kubeReserved", "memory limit of the cgroup of all pods (kubepods)", _pod_limit, ("cgroups",), waits=True,
    ),
    Sign(_KUBELET, "evictionHard", "memory in the node's Allocatable", _allocatable("memory"), waits=True),
    Sign(_KUBELET, "nodeLeaseDurationSeconds", "leaseDurationSeconds of the node's Lease", _lease, waits=True),
    Sign(_KUBELET, "localStorageCapacityIsolation", "ephemeral-storage in the node's capacity", _isolation, waits=True),
    Sign(_KUBELET, "readOnlyPort", "the process listens there, or no longer at 10255", _read_only, ("ports",)),
    Sign(
        _KUBELET, "maxOpenFiles", "`Max open files` of the process (/proc/PID/limits)",
        _of_process(lambda node: node.open_files, "Max open files"), ("process",),
    ),
    Sign(
        _KUBELET, "oomScoreAdj", "/proc/PID/oom_score_adj", _of_process(lambda node: node.oom_score_adj, "oom_score_adj"), ("process",),
    ),
    Sign(
        _KUBELET, r"authentication\.anonymous\.enabled", "the status of a request without credentials: 401 if off", _anonymous(False),
        ("anonymous",),
    ),
    Sign(_KUBELET, "enableSystemLogHandler", "/logs/ answers", _endpoint("/logs/")),
    Sign(_KUBELET, "enableProfilingHandler", "/debug/pprof/ answers", _endpoint("/debug/pprof/")),
    Sign(_KUBELET, "tlsCertFile|tlsPrivateKeyFile", "a TLS handshake gets that file's certificate", _served, ("certificate",)),
    Sign(_KUBELET, "tlsMinVersion", "a TLS handshake with 1.2 is refused, or accepted", _tls),
    Sign(_KUBELET, r"logging\.format", "the last line of its log is JSON, or text", _format, ("log",)),
    Sign(
        _API, "audit-log-path", "the file of the process is the node's own, and has bytes", _grows, ("written",), waits=True,
    ),
    Sign(_API, "audit-webhook-config-file", "no failed delivery (apiserver_audit_error_total)", _webhook),
    Sign(_ALL, "tls-cert-file|tls-private-key-file", "a TLS handshake gets that file's certificate", _served, ("certificate",)),
    Sign(_ALL, "tls-min-version", "a TLS handshake with 1.2 is refused, or accepted", _tls),
    Sign(_API, "anonymous-auth", "the status of a request without credentials: 401 if off", _anonymous(True), ("anonymous",)),
    Sign((API_SERVER, MANAGER), "profiling", "/debug/pprof/ answers", _endpoint("/debug/pprof/")),
    Sign(_ALL, "logging-format", "the last line of its log is JSON, or text", _format, ("log",)),
    Sign(_API, "service-account-issuer", "`issuer` at /.well-known/openid-configuration is the first one", _issuer),
    Sign(_API, "service-account-jwks-uri", "`jwks_uri` at /.well-known/openid-configuration", _jwks),
    Sign(_API, "runtime-config", "/apis/GROUP/VERSION answers, or no longer", _served_groups),
    Sign(
        _API, "enable-admission-plugins", "the plugins have acted (apiserver_admission_controller_...)", _admission(True), absent="no sign",
    ),
    Sign(_API, "disable-admission-plugins", "the plugins have not acted", _admission(False)),
    Sign((MANAGER,), "leader-elect(?:-.*)?", "the Lease that its flags name is held by this node", _leader, absent="no sign", waits=True),
    Sign(
        _API, "requestheader-.*|proxy-client-.*|enable-aggregator-routing", "each aggregated API answers through it", _aggregated,
        absent="NOT PROVEN", waits=True,
    ),
)  # fmt: skip


def signs_of(program: str, names: Iterator[str] | Sequence[str] | Mapping[str, Any]) -> list[tuple[str, Sign]]:
    """The signs of some settings: each with the first setting that it is about."""
    found: dict[int, tuple[str, Sign]] = {}
    for name in names:
        for number, sign in enumerate(SIGNS):
            if sign.concerns(program, name):
                found.setdefault(number, (name, sign))
    return list(found.values())


def wanted(look: Look, signs: Sequence[Sign], log: str, written: Mapping[str, str]) -> Wanted:
    """What the signs need of the node. `log`: where the process logs (Wanted.log); `written`: as in Wanted."""
    needs = {need for sign in signs for need in sign.needs}
    return Wanted(
        kinds=frozenset(needs & {"locks", "process", "ports", "cgroups"}),
        log=log if "log" in needs else "",
        written=written if "written" in needs else {},
        certificates=(certificate_file(look),) if "certificate" in needs and certificate_file(look) else (),
        anonymous=(anonymous_url(look.address),) if "anonymous" in needs else (),
    )


def value_of(look: Look, program: str, name: str) -> Any:
    """The value that a sign is judged by: that of the running process."""
    return lookup(look.configuration, name) if program == KUBELET else look.flag(name)
