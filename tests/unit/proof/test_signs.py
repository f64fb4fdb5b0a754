"""What shows that a setting works: the table against the fields of the kubelet, and what each sign says."""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from roles.engine import bridge
from roles.engine.api.errors import NoApi
from roles.engine.kubelet import schema
from roles.engine.named_paths import API_SERVER, KUBELET, MANAGER
from roles.engine.node.logind import parse_inhibitor
from roles.engine.proof import ChangedProcess, Proof, Prover, RequiredProof, node_signs
from roles.engine.proof import prover as prover_module
from roles.engine.proof.no_sign import NO_SIGNS, no_signs
from roles.engine.proof.node_signs import FileFacts, NodeSigns, Wanted
from roles.engine.proof.signs import SIGNS, Found, Sign, signs_of, value_of
from roles.engine.runs import end_unproven
from roles.engine.runs.deploying import UNPROVEN
from roles.engine.table import NOT_PROVEN
from roles.engine.transaction import Status
from tests.unit.proof.world import APP, APPLIED, Node

#: Fields that have no sign of their own: the process uses the value that /configz shows, and nothing else could be looked at.
VALUES = re.compile(
    r"syncFrequency|fileCheckFrequency|httpCheckFrequency|staticPodURLHeader|nodeStatusUpdateFrequency|nodeStatusReportFrequency"
    r"|authentication\.webhook\.cacheTTL|authorization\.webhook\.cache(?:Authorized|Unauthorized)TTL|eventRecordQPS|eventBurst"
    r"|kubeAPIQPS|kubeAPIBurst|contentType|streamingConnectionIdleTimeout|volumeStatsAggPeriod|runtimeRequestTimeout|nodeStatusMaxImages"
    r"|configMapAndSecretChangeDetectionStrategy|kernelMemcgNotification|showHiddenMetricsForVersion|containerLogMonitorInterval"
    r"|logging\.(?!format).*|cpuManagerReconcilePeriod|cpuManagerPolicy|memoryManagerPolicy|cgroupDriver|failSwapOn|failCgroupV1"
    r"|protectKernelDefaults|mergeDefaultEvictionSettings|featureGates"
)

LOCK = parse_inhibitor("WHAT=shutdown\nWHO=kubelet\nWHY=x\nMODE=delay\nPID=2\n")
LOG = "/var/log/audit/audit.log"
NODE = {
    "status": {
        "capacity": {"cpu": "2", "memory": "1000Ki", "pods": "110", "ephemeral-storage": "5Gi"},
        "allocatable": {"cpu": "1900m", "memory": "800Ki", "pods": "77"},
    }
}


@dataclass
class Seen:
    """A process as signs see it."""

    configuration: Mapping[str, Any] = field(default_factory=dict)
    node: NodeSigns = field(default_factory=NodeSigns)
    argv: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    program: str = KUBELET
    pid: str = "2"
    node_name: str = "cp1"
    address: tuple[str, int] = ("127.0.0.1", 10250)
    paths: Mapping[str, bool] = field(default_factory=dict)
    told: Mapping[str, Any] = field(default_factory=dict)
    metrics: str = ""
    lease: int = 40
    served: bytes | None = None
    tls12: bool | None = None
    apis: Mapping[str, str] = field(default_factory=dict)

    def flag(self, name: str) -> tuple[str, ...]:
        return self.argv.get(name, ())

    def api_node(self) -> Mapping[str, Any]:
        return NODE

    def lease_seconds(self) -> int:
        return self.lease

    def answers(self, path: str) -> bool | None:
        return self.paths.get(path)

    def json(self, path: str) -> Mapping[str, Any]:
        return self.told

    def text(self, path: str) -> str:
        return self.metrics

    def certificate(self) -> bytes | None:
        return self.served

    def accepts_tls12(self) -> bool | None:
        return self.tls12

    def aggregated(self) -> Mapping[str, str]:
        return self.apis


def found(seen: Seen, name: str) -> list[Found]:
    return [sign.judge(seen, value_of(seen, seen.program, one)) for one, sign in signs_of(seen.program, [name])]


def kinds(seen: Seen, name: str) -> list[str]:
    return [one.kind for one in found(seen, name)]


def api(**flags: str) -> Seen:
    return Seen(program=API_SERVER, argv={name.replace("_", "-"): (value,) for name, value in flags.items()})


# ---- the table


def test_every_field_of_every_kubelet_has_a_sign_or_is_said_not_to_have_one() -> None:
    """Also: none is in two groups. A new minor's field must be put into one."""
    leaves: dict[str, None] = {}
    for minor in range(schema.OLDEST, schema.NEWEST + 1):
        known = schema.fields(minor)
        leaves |= dict.fromkeys(name for name, one in known.items() if one.kind != "object" and "[]" not in name)
    for name in leaves:
        groups = [
            bool(signs_of(KUBELET, [name])),
            any(one.concerns(KUBELET, name) for one in NO_SIGNS),
            VALUES.fullmatch(name) is not None,
            any(more.refused for more in schema.needs_more([name]) if more.path == name),
        ]
        assert sum(groups) == 1, (name, groups)


def test_each_row_names_a_setting_that_exists() -> None:
    names = {name for minor in range(schema.OLDEST, schema.NEWEST + 1) for name in schema.fields(minor)}
    for row in (*SIGNS, *NO_SIGNS):
        if row.programs == (KUBELET,):
            assert any(row.concerns(KUBELET, name) for name in names), row.name


# ---- graceful shutdown


def shutdown(**more: Any) -> Seen:
    return Seen({"shutdownGracePeriod": "120s"}, NodeSigns(**{"inhibitors": (LOCK,), "delay": 120.0, **more}))


def test_the_lock_of_the_new_process_shows_graceful_shutdown() -> None:
    (one,) = found(shutdown(), "shutdownGracePeriod")
    assert one == Found("shown", "its lock delays shutdowns, logind waits 120 s")
    (one,) = found(shutdown(inhibitors=(), delay=30.0), "shutdownGracePeriodCriticalPods")
    assert one.kind == "missing" and "PID 2 holds no lock" in one.text and "logind waits 30 s, 120 s needed" in one.text


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        (shutdown(inhibitors=(replace(LOCK, pid="1"),)), "missing"),  # that of the process before
        (shutdown(inhibitors=(replace(LOCK, who="x"),)), "missing"),
        (shutdown(delay=30.0), "missing"),
        (shutdown(delay=None), "unknown"),
        (replace(shutdown(), configuration={"shutdownGracePeriod": "0s"}), "missing"),
        (replace(shutdown(inhibitors=()), configuration={}), "shown"),
    ],
)
def test_other_locks(seen: Seen, kind: str) -> None:
    assert kinds(seen, "shutdownGracePeriod") == [kind]


# ---- the other signs, each shown, missing and unknown

GRACE = {"shutdownGracePeriodByPodPriority": [{"priority": 0, "shutdownGracePeriodSeconds": 100}]}
SAME, OTHER = FileFacts("1:2", 5, 9), FileFacts("1:3", 5, 9)
ANONYMOUS = "https://127.0.0.1:10250/metrics"
ERRORS = 'apiserver_audit_error_total{plugin="webhook"} 3\n'
ACTED = 'apiserver_admission_controller_admission_duration_seconds_count{name="NodeRestriction",operation="CREATE"} 4\n'
CASES = [
    ("shutdownGracePeriodByPodPriority", Seen(GRACE, NodeSigns((LOCK,), 100.0)), "shown"),
    ("maxPods", Seen({"maxPods": 77}), "shown"),
    ("maxPods", Seen({"maxPods": 78}), "missing"),
    ("evictionHard", Seen({"evictionHard": {"memory.available": "200Ki"}}), "shown"),
    ("evictionHard", Seen({"evictionHard": {"memory.available": "300Ki"}}), "missing"),
    ("nodeLeaseDurationSeconds", Seen({"nodeLeaseDurationSeconds": 40}), "shown"),
    ("nodeLeaseDurationSeconds", Seen({"nodeLeaseDurationSeconds": 60}), "missing"),
    ("localStorageCapacityIsolation", Seen({}), "shown"),
    ("localStorageCapacityIsolation", Seen({"localStorageCapacityIsolation": False}), "missing"),
    ("readOnlyPort", Seen({"readOnlyPort": 10255}, NodeSigns(ports=frozenset({10250, 10255}))), "shown"),
    ("readOnlyPort", Seen({"readOnlyPort": 10255}, NodeSigns(ports=frozenset({10250}))), "missing"),
    ("readOnlyPort", Seen({}, NodeSigns(ports=frozenset({10250, 10255}))), "missing"),
    ("readOnlyPort", Seen({}), "unknown"),
    ("maxOpenFiles", Seen({"maxOpenFiles": 5}, NodeSigns(open_files=5)), "shown"),
    ("maxOpenFiles", Seen({"maxOpenFiles": 5}, NodeSigns(open_files=4)), "missing"),
    ("oomScoreAdj", Seen({"oomScoreAdj": -5}, NodeSigns(oom_score_adj=-5)), "shown"),
    ("oomScoreAdj", Seen({"oomScoreAdj": -5}), "unknown"),
    ("authentication.anonymous.enabled", Seen({}, NodeSigns(anonymous={ANONYMOUS: 401})), "shown"),
    ("authentication.anonymous.enabled", Seen({}, NodeSigns(anonymous={ANONYMOUS: 403})), "missing"),
    ("authentication.anonymous.enabled", Seen({}), "unknown"),
    ("enableProfilingHandler", Seen({"enableProfilingHandler": False}, paths={"/debug/pprof/": False}), "shown"),
    ("enableProfilingHandler", Seen({"enableProfilingHandler": False}, paths={"/debug/pprof/": True}), "missing"),
    ("enableSystemLogHandler", Seen({}), "unknown"),
    ("tlsMinVersion", Seen({"tlsMinVersion": "VersionTLS13"}, tls12=False), "shown"),
    ("tlsMinVersion", Seen({"tlsMinVersion": "VersionTLS13"}, tls12=True), "missing"),
    ("logging.format", Seen({"logging": {"format": "json"}}, NodeSigns(log='{"ts":1}')), "shown"),
    ("logging.format", Seen({"logging": {"format": "json"}}, NodeSigns(log="I1126 x")), "missing"),
    ("logging.format", Seen({}), "unknown"),
    ("audit-log-path", replace(api(audit_log_path=LOG, audit_policy_file="/p"), node=NodeSigns(written={LOG: (SAME, SAME)})), "shown"),
    ("audit-log-path", replace(api(audit_log_path=LOG, audit_policy_file="/p"), node=NodeSigns(written={LOG: (SAME, OTHER)})), "missing"),
    ("audit-log-path", replace(api(audit_log_path=LOG, audit_policy_file="/p"), node=NodeSigns(written={LOG: (SAME, None)})), "missing"),
    ("audit-log-path", replace(api(audit_log_path=LOG), node=NodeSigns(written={LOG: (SAME, SAME)})), "missing"),
    ("audit-log-path", api(audit_log_path=LOG, audit_policy_file="/p"), "nothing"),  # in the container
    ("audit-log-path", api(audit_log_path="-"), "shown"),
    ("audit-webhook-config-file", replace(api(audit_webhook_config_file="/w", audit_policy_file="/p"), metrics=ERRORS), "missing"),
    ("audit-webhook-config-file", api(audit_webhook_config_file="/w", audit_policy_file="/p"), "nothing"),
    ("logging-format", replace(api(logging_format="json"), node=NodeSigns(log='2026-11-26T21:00:00Z stderr F {"ts":1}')), "shown"),
    ("service-account-issuer", replace(api(service_account_issuer="https://x"), told={"issuer": "https://x"}), "shown"),
    ("service-account-issuer", replace(api(service_account_issuer="https://x"), told={"issuer": "https://y"}), "missing"),
    ("runtime-config", replace(api(runtime_config="batch/v1=true"), paths={"/apis/batch/v1": True}), "shown"),
    ("runtime-config", replace(api(runtime_config="batch/v1=false"), paths={"/apis/batch/v1": True}), "missing"),
    ("runtime-config", api(runtime_config="api/all=true"), "nothing"),
    ("enable-admission-plugins", replace(api(enable_admission_plugins="NodeRestriction"), metrics=ACTED), "shown"),
    ("enable-admission-plugins", api(enable_admission_plugins="NodeRestriction"), "nothing"),
    ("disable-admission-plugins", replace(api(disable_admission_plugins="NodeRestriction"), metrics=ACTED), "missing"),
    ("profiling", replace(api(profiling="false"), paths={"/debug/pprof/": True}), "missing"),
    ("leader-elect", Seen(program=MANAGER, told={"spec": {"holderIdentity": "cp1_1"}}), "shown"),
    ("leader-elect", Seen(program=MANAGER, told={"spec": {"holderIdentity": "cp10_1"}}), "nothing"),
    ("leader-elect", Seen(program=MANAGER), "unknown"),
    ("enable-aggregator-routing", api(enable_aggregator_routing="true"), "nothing"),
    ("enable-aggregator-routing", replace(api(enable_aggregator_routing="true"), apis={"v1.a": "", "v1.b": ""}), "shown"),
    ("proxy-client-key-file", replace(api(proxy_client_key_file="/k"), apis={"v1.a": "", "v1.b": "HTTP 503"}), "missing"),
]


@pytest.mark.parametrize(("name", "seen", "kind"), CASES, ids=[f"{name}-{kind}-{number}" for number, (name, _, kind) in enumerate(CASES)])
def test_a_sign(name: str, seen: Seen, kind: str) -> None:
    assert kinds(seen, name) == [kind], found(seen, name)


def test_a_file_of_another_certificate(tmp_path: Any) -> None:
    made = {}
    for name in "ab":
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}"]
        subprocess.run([*words, "-keyout", tmp_path / f"{name}.key", "-out", tmp_path / name], check=True, capture_output=True)
        der = subprocess.run(["openssl", "x509", "-in", tmp_path / name, "-outform", "DER"], check=True, capture_output=True).stdout
        made[name] = (tmp_path / name).read_text(), der
    seen = Seen({"tlsCertFile": "/c"}, NodeSigns(certificates={"/c": made["a"][0]}))
    assert kinds(replace(seen, served=made["a"][1]), "tlsCertFile") == ["shown"]
    assert kinds(replace(seen, served=made["b"][1]), "tlsPrivateKeyFile") == ["missing"]
    assert kinds(seen, "tlsCertFile") == ["unknown"]


def test_the_limit_of_all_pods() -> None:
    conf = {"systemReserved": {"memory": "200Ki", "cpu": "100m"}, "enforceNodeAllocatable": ["pods"]}
    right, wrong = f"{800 * 1024}", f"{1000 * 1024}"
    # The cgroup of another driver may be left from before.
    for limits, kind in (((right,), "shown"), ((wrong, right), "shown"), ((wrong,), "missing"), (("max",), "unknown"), ((), "unknown")):
        assert kinds(Seen(conf, NodeSigns(pod_limits=limits)), "systemReserved") == ["shown", kind]
    assert kinds(Seen({**conf, "enforceNodeAllocatable": ["none"]}, NodeSigns(pod_limits=(wrong,))), "systemReserved") == ["shown", "shown"]


# ---- in a proof


def proven(one: Found, *, undoes: bool = False) -> Proof:
    (_, sign), *_ = signs_of(KUBELET, ["shutdownGracePeriod"])
    settings = {"shutdownGracePeriod": "120s", "containerLogMaxSize": "11Mi", "syncFrequency": "2m"}
    owed = ChangedProcess("w1", "w1", "kubelet", undoes=undoes), RequiredProof(settings=settings)

    def look(status: Status, names: list[str]) -> list[Any]:
        assert status.identity == APPLIED.identity and names == list(settings)
        return [(sign, one)]

    prover = Prover(Node(settings, [APP], [APP]), *owed, look)
    assert prover.ready() is None
    return prover.prove(APPLIED)


def test_a_missing_sign_reverts_and_an_unknown_one_does_not() -> None:
    rotated = "no sign that logs are rotated so: none is looked at (containerLogMaxSize)"
    assert proven(Found("shown", "its lock is there")).how.endswith(f"its lock is there; {rotated}")
    gone = proven(Found("missing", "no lock"))
    assert gone.problems == ("no lock",)
    unread = proven(Found("unknown", "logind did not answer"))
    assert unread.problems == () and unread.how.endswith(f"{rotated}; NOT PROVEN: logind did not answer")


def test_an_undo_restores_a_setting_that_did_not_work_before_either() -> None:
    found = proven(Found("missing", "no lock"), undoes=True)
    assert found.problems == () and "no lock" in found.how


def test_values_without_a_sign_are_not_named() -> None:
    assert no_signs(KUBELET, ["syncFrequency", "maxPods"]) == []
    assert no_signs(KUBELET, ["clusterDNS", "resolvConf"]) == ["that a new pod gets it in its /etc/resolv.conf (clusterDNS, resolvConf)"]


@pytest.mark.parametrize("undoes", [False, True])
@pytest.mark.parametrize("kind", ["shown", "missing", "unknown", "nothing", "unread"])
def test_a_run_that_ends_with_0_has_shown_each_sign_that_there_was(kind: Any, undoes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could be looked at and was not seen reverts the change, or the run is not all proven."""
    ended: list[int] = []
    monkeypatch.setattr(bridge, "end_with", ended.append)
    for sign in SIGNS:
        ended.clear()
        monkeypatch.setattr(prover_module, "signs_of", lambda *_, sign=sign: [("x", sign)])
        monkeypatch.setattr(prover_module, "no_signs", lambda *_: ["that it works later"])

        def look(status: Status, names: list[str], sign: Sign = sign) -> list[Any]:
            if kind == "unread":
                raise NoApi("no API answers")
            return [(sign, Found(kind, "the sign"))]

        process = ChangedProcess("w1", "w1", sign.programs[0], undoes=undoes)
        texts, problems = Prover(Node({}, [], []), process, RequiredProof(), look)._signs(APPLIED)
        end_unproven(texts, ())
        code = 1 if problems else ended[-1] if ended else 0
        assert not (code == 0 and NOT_PROVEN in "".join(texts)), sign
        reverted = kind == "missing" and sign.absent == "reverted" and not undoes
        without = kind == "nothing" or (kind == "missing" and sign.absent == "no sign")
        assert code == (1 if reverted else 0 if kind == "shown" or without else UNPROVEN), sign
        assert "no sign that it works later" in texts and ("no sign of the sign" in texts) == without, sign


# ---- what the node prints


def test_the_node_s_answer_of_a_real_process(tmp_path: Any) -> None:
    wanted = Wanted(
        frozenset({"locks", "process", "ports", "cgroups"}), "journal", {"/etc/passwd": "/etc/passwd"}, ("/no",), ("https://127.0.0.1:1/",)
    )
    done = subprocess.run(["sh", "-s"], input=wanted.script("self"), text=True, capture_output=True, check=True)
    assert not done.stderr
    seen = node_signs.parse(done.stdout.splitlines())
    inside, outside = seen.written["/etc/passwd"]
    assert inside == outside and inside is not None and inside.size > 0
    assert seen.open_files and seen.oom_score_adj is not None and seen.anonymous == {"https://127.0.0.1:1/": 0}


def test_sockets_that_listen_are_those_of_the_process() -> None:
    tcp = (
        "   0: 00000000:280A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n"
        "   1: 00000000:280F 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0 0 10 0\n"
    )
    lines = ["signs 1", f"tcp {base64.b64encode(tcp.encode()).decode()}=", f"sockets {base64.b64encode(b'4711').decode()}=", "end"]
    assert node_signs.parse(lines).ports == {10250}
    with pytest.raises(ValueError, match="cut short"):
        node_signs.parse(lines[:-1])
