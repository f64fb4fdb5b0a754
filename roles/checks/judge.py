"""Pure: what is seen of a node, held against what must hold on it, and against what the inventory wants of it.

One table of checks for deploys/checks.py and for tests/acceptance. Each finds one kind of fault; a check that cannot be judged because of
another's fault is skipped, so that a fault is told once, by its name.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from roles import eviction, feature_gates, kubelet_config, priority_classes
from roles.checks.evidence import KUBELET, Evidence
from roles.checks.model import NodeDesired
from roles.engine.control_plane import COMPONENTS
from roles.engine.editing import FormatError, manifest
from roles.engine.inputs import chosen
from roles.engine.kubelet import pending_sentences
from roles.engine.transaction import Refusal, in_flight

# pass: it holds. fail: it does not. skip: it does not apply here, or another check must pass first. unknown: it could not be seen.
CheckOutcome = Literal["pass", "fail", "skip", "unknown"]
# The kubelet reads every name in its manifests directory that has no dot in front, whatever it ends with
# (pkg/kubelet/config/file.go, extractFromDir): these are the endings that people give to what is meant to be read.
MEANT = (".yaml", ".yml", ".json")
# systemctl(1), is-enabled: what starts at boot. A static unit has nothing to be enabled by; something else starts it.
STARTS = ("enabled", "static", "alias", "indirect", "generated")
CLUSTER = "cluster"


@dataclass(frozen=True)
class CheckVerdict:
    """How a check ended, and why: evidence where it passed, the fault where it failed. `waits`: another check is to pass first."""

    outcome: CheckOutcome
    why: str
    waits: bool = False


@dataclass(frozen=True)
class Result:
    """A verdict with its place; `node` is a host of the inventory, or `cluster`. `applies` is False where there is nothing to check."""

    node: str
    check: str
    outcome: CheckOutcome
    why: str
    applies: bool = True


@dataclass(frozen=True)
class Check:
    """One check of a node. `meaning`: what holds where it passes. `needs`: checks without which it says nothing."""

    name: str
    meaning: str
    judge: Callable[[Evidence, NodeDesired], CheckVerdict]
    needs: tuple[str, ...] = ()


def _held(problems: Iterable[str], why: str) -> CheckVerdict:
    told = "; ".join(problems)
    return CheckVerdict("fail", told) if told else CheckVerdict("pass", why)


def _skip(why: str) -> CheckVerdict:
    return CheckVerdict("skip", why)


# ---- the kubelet and its unit


def _running(found: Evidence, _: NodeDesired) -> CheckVerdict:
    last = found.moments[-1].properties if found.moments else {}
    if found.running:
        return CheckVerdict("pass", _process(found))
    if found.restarting:
        return _skip("it does not stay: kubelet-stable")
    state = f"{last.get('ActiveState', 'unknown')} ({last.get('SubState', '?')}, {last.get('Result', '?')})"
    return CheckVerdict("fail", f"no kubelet runs as a service of systemd; kubelet.service is {state}")


def _process(found: Evidence) -> str:
    assert found.seen is not None and found.seen.kubelet is not None and found.seen.unit is not None
    process = found.seen.kubelet
    return f"{found.seen.unit.name}, PID {process.pid}, {process.version or 'version unknown'}"


def _stable(found: Evidence, _: NodeDesired) -> CheckVerdict:
    if found.restarting:
        return CheckVerdict("fail", found.restarting)
    if not found.running:
        return _skip("no kubelet runs")
    last = found.moments[-1]
    assert found.seen is not None
    age = last.uptime - last.start_ticks / found.seen.ticks_per_second
    return CheckVerdict("pass", f"the same process in {len(found.moments)} looks, {age:.0f} s old")


def _enabled(found: Evidence, _: NodeDesired) -> CheckVerdict:
    state = found.moments[-1].properties.get("UnitFileState", "") if found.moments else ""
    told = f"systemctl is-enabled says {state or 'nothing'}"
    if state in STARTS:
        return CheckVerdict("pass", told)
    return CheckVerdict("fail", f"the kubelet would not start at boot: {told}; `systemctl enable` it on the node")


def _loaded(found: Evidence, _: NodeDesired) -> CheckVerdict:
    assert found.seen is not None and found.seen.unit is not None  # needs kubelet-running
    if found.seen.unit.needs_daemon_reload:
        return CheckVerdict(
            "fail", f"{found.seen.unit.name} was edited on disk and systemd has not read it: `systemctl daemon-reload`, then look"
        )
    return CheckVerdict("pass", "systemd has read the unit as it is on disk")


def _readable(found: Evidence, _: NodeDesired) -> CheckVerdict:
    if found.refused:
        return CheckVerdict("fail", found.refused)
    assert found.kubelet is not None
    return CheckVerdict("pass", f"{found.kubelet.config_path or 'flags only'}, {found.kubelet.style}")


def _healthy(name: str, found: Evidence, _: NodeDesired) -> CheckVerdict:
    if name != KUBELET and name not in found.components:
        return _skip(f"no {name} runs here as a static pod")
    url = found.kubelet.health_url if name == KUBELET and found.kubelet else found.components[name].health_url
    health = found.health.get(name)
    if health is None:
        return CheckVerdict("unknown", f"{url} was not asked")
    if health.status in ("401", "403"):
        return CheckVerdict("unknown", f"{url} answers {health.status}: it serves, and does not tell a stranger how it is")
    told = f"{url} answers {health.status if health.status != '000' else 'nothing'}"
    return CheckVerdict("pass", told) if health.status == "200" else CheckVerdict("fail", f"{told}: {health.said[-400:]}".rstrip(": "))


def _binary(found: Evidence, _: NodeDesired) -> CheckVerdict:
    assert found.kubelet is not None
    process = found.kubelet.process
    if process.binary_replaced:
        return CheckVerdict(
            "fail", f"{process.exe.removesuffix(' (deleted)')} was replaced since it started: a restart brings another kubelet"
        )
    return CheckVerdict("pass", f"{process.exe} is the file that runs")


def _arguments(found: Evidence, _: NodeDesired) -> CheckVerdict:
    kubelet = found.kubelet
    assert kubelet is not None
    has, gives = kubelet.process.argv, kubelet.service.argv
    if len(has) != len(gives):
        extra = set(has[1:]) ^ {word.text for word in gives[1:]}
        return CheckVerdict(
            "fail", f"it runs with other arguments than its unit gives: {' '.join(sorted(extra))}: a restart brings a surprise"
        )
    # The first word is the program; a word with a specifier is only known to systemd.
    differ = [
        f"runs with {one}, {word.origin} gives {word.text}"
        for one, word in list(zip(has, gives, strict=True))[1:]
        if word.known and one != word.text
    ]
    return _held(differ, f"{len(has) - 1} arguments, as its unit gives them")


def _configuration(found: Evidence, _: NodeDesired) -> CheckVerdict:
    kubelet = found.kubelet
    assert kubelet is not None
    if isinstance(found.configuration, str):
        # Without the API: a file that is older than the process is the one that it has read.
        started = kubelet.seen.started_at(kubelet.process)
        paths = [path for path in (kubelet.config_path, *kubelet.dropin_paths) if path]
        newer = [path for path in paths if (file := kubelet.seen.file(path)) and file.mtime > started + 1]
        told = [f"{path} was changed after the kubelet started, which reads it at its start only" for path in newer]
        return _held(told, f"no file of it is newer than the process (/configz: {found.configuration})")
    return _held(pending_sentences(kubelet, found.configuration), "/configz is as its files say")


def _ready(found: Evidence, _: NodeDesired) -> CheckVerdict:
    if isinstance(found.node, str):
        return CheckVerdict("unknown", found.node)
    conditions = (found.node.get("status") or {}).get("conditions") or ()
    ready: Mapping[str, Any] = next((one for one in conditions if one.get("type") == "Ready"), {})
    told = f"Ready is {ready.get('status', 'not told')} ({ready.get('reason', 'no reason')})"
    if ready.get("status") == "True":
        return CheckVerdict("pass", told)
    return CheckVerdict("fail", f"{told}: {ready.get('message', '')}".rstrip(": "))


# ---- what the inventory wants


def _gates(component: str, found: Evidence, wishes: NodeDesired) -> CheckVerdict:
    assert found.kubelet is not None
    if component != KUBELET and component not in found.components:
        return _skip(f"no {component} runs here as a static pod")
    seen = found.kubelet if component == KUBELET else found.components[component]
    wanted = feature_gates.wanted_of(found.host, component, seen.process, wishes.gates) if wishes.gates else {}
    wanted |= wishes.more_gates.get(component, {})
    if not wanted:
        return _skip("the inventory wants no gate of it")
    effective = found.effective.get(component, "")
    metrics = None if isinstance(effective, str) else effective
    unmet = feature_gates.unmet(seen, wanted, metrics)
    problems = [str(one) for one in unmet if one.known]
    if unmet and not problems:
        off = ", ".join(one.gate for one in unmet)
        return CheckVerdict("unknown", f"{off}: set nowhere, and whether it is off by default was not told: {effective}")
    shown = ", ".join(f"{name}={'absent' if value is None else str(value).lower()}" for name, value in wanted.items())
    by = "in /metrics" if metrics is not None else f"on its command line and in its files ({effective})"
    return _held(problems, f"{shown} {by}")


def _settings(found: Evidence, wishes: NodeDesired) -> CheckVerdict:
    if wishes.fields is None or not chosen(wishes.fields.only, found.host):
        return _skip("the inventory has no kubelet_config for it")
    if isinstance(found.configuration, str):
        return CheckVerdict("unknown", found.configuration)
    assert found.kubelet is not None
    try:
        unmet = kubelet_config.unmet(wishes.fields, found.kubelet, found.configuration)
    except Refusal as refusal:
        return CheckVerdict("fail", refusal.message)
    return _held(map(str, unmet), f"{', '.join(wishes.fields.kubelet_config)} in /configz")


def _thresholds(found: Evidence, wishes: NodeDesired) -> CheckVerdict:
    if wishes.eviction is None or not chosen(wishes.eviction.only, found.host):
        return _skip("the inventory has no eviction thresholds for it")
    if isinstance(found.configuration, str):
        return CheckVerdict("unknown", found.configuration)
    assert found.kubelet is not None
    wanted = [name for name in wishes.eviction.model_fields_set if name.startswith("eviction_")]
    unmet = eviction.unmet(wishes.eviction, found.kubelet, found.configuration)
    return _held(map(str, unmet), f"{', '.join(sorted(wanted))} in /configz")


# ---- manifests and the control plane


def _names(found: Evidence) -> list[str] | str:
    """Names in the manifests directory that the kubelet does not skip for their dot; or why there are none."""
    assert found.kubelet is not None
    seen, folder = found.kubelet.seen, found.kubelet.manifests
    if folder is None:
        return "this kubelet has no directory for static pods"
    names = seen.directories.get(posixpath.normpath(folder))
    if names is None:
        # kubeadm names the directory on workers too and does not make it; the kubelet waits for it.
        return f"{folder} is not there"
    return [name for name in names if not name.startswith(".")]


def _clean(found: Evidence, _: NodeDesired) -> CheckVerdict:
    names = _names(found)
    if isinstance(names, str):
        return _skip(names)
    assert found.kubelet is not None and found.kubelet.manifests is not None
    folder = found.kubelet.manifests
    strays = [name for name in names if not name.endswith(MEANT) or found.kubelet.seen.data(posixpath.join(folder, name)) is None]
    return _held([f"{folder} holds what is no manifest: {', '.join(strays)}"] if strays else [], f"{len(names)} manifests in {folder}")


def _pods(found: Evidence, _: NodeDesired) -> CheckVerdict:
    names = _names(found)
    if isinstance(names, str):
        return _skip(names)
    assert found.kubelet is not None and found.kubelet.manifests is not None
    folder = found.kubelet.manifests
    files: dict[str, list[str]] = {}
    problems = []
    for name in names:
        path = posixpath.join(folder, name)
        data = found.kubelet.seen.data(path)
        if data is None or not name.endswith(MEANT):
            continue
        try:
            pod = manifest.read(data)
        except FormatError as error:
            problems.append(str(error.in_file(path)))
            continue
        files.setdefault(f"{pod.namespace}/{pod.name}", []).append(name)
    problems += [
        f"{', '.join(there)} in {folder} all make the pod {pod}; the kubelet takes one of them"
        for pod, there in files.items()
        if len(there) > 1
    ]
    return _held(problems, f"each manifest makes a pod of its own: {len(files)}")


def _control_plane(found: Evidence, wishes: NodeDesired) -> CheckVerdict:
    if found.control_plane_refused:
        # Most often because of the very files that another check names. Other files beside the manifests are no matter here.
        if _pods(found, wishes).outcome == "fail":
            return CheckVerdict("skip", "judged once manifests-pods passes", waits=True)
        return CheckVerdict("fail", found.control_plane_refused)
    if not found.components:
        return _skip("no component of the control plane has a manifest here")
    return CheckVerdict("pass", f"{', '.join(found.components)}, each from its manifest")


def _settled(found: Evidence, _: NodeDesired) -> CheckVerdict:
    assert found.seen is not None
    return _held(in_flight(found.seen.changes, found.seen.boot_id, found.seen.uptime), "no change is in flight, none wants a hand")


_UNDERSTOOD = ("kubelet-running", "kubelet-stable", "kubelet-files")
_WELL = (*_UNDERSTOOD, "kubelet-healthy")
_FOUND = (*_UNDERSTOOD, "control-plane-runs")
_SERVED = {name: () if name == "kube-apiserver" else ("kube-apiserver-healthy",) for name in COMPONENTS}

CHECKS: tuple[Check, ...] = (
    Check("kubelet-running", "a kubelet runs as a service of systemd", _running),
    Check("kubelet-stable", "it is the same process for half a minute", _stable),
    Check("kubelet-enabled", "its service starts at boot", _enabled),
    Check("kubelet-unit", "systemd has read the unit as it is on disk", _loaded, ("kubelet-running",)),
    Check("kubelet-files", "its unit and its configuration can be read, and it would start again", _readable, ("kubelet-running",)),
    Check("kubelet-healthy", "its /healthz answers 200 on the node", partial(_healthy, KUBELET), _UNDERSTOOD),
    Check("kubelet-binary", "the program that runs is the one on disk", _binary, _UNDERSTOOD),
    Check("kubelet-arguments", "it runs with the arguments that its unit gives", _arguments, (*_UNDERSTOOD, "kubelet-unit")),
    Check(
        "kubelet-configuration",
        "it runs with what its files say (/configz)",
        _configuration,
        (*_WELL, "kubelet-unit", "kubelet-arguments"),
    ),
    Check("kubelet-gates", "it runs with the gates that the inventory wants", partial(_gates, KUBELET), (*_WELL, "kubelet-configuration")),
    Check("kubelet-settings", "it runs with the fields that the inventory wants", _settings, (*_WELL, "kubelet-configuration")),
    Check("eviction-thresholds", "it uses the thresholds that the inventory wants", _thresholds, (*_WELL, "kubelet-configuration")),
    Check("node-ready", "the API has the node as Ready", _ready, _WELL),
    Check("manifests-clean", "the manifests directory holds manifests and nothing else", _clean, _UNDERSTOOD),
    Check("manifests-pods", "each manifest can be read and makes a pod of its own", _pods, _UNDERSTOOD),
    Check(
        "control-plane-runs",
        "each component of the control plane runs from its manifest",
        _control_plane,
        _UNDERSTOOD,
    ),
    *(
        # Without their API server the others lose their leader's lease, and end.
        Check(f"{name}-healthy", f"{name} is well, asked on the node itself", partial(_healthy, name), (*_FOUND, *_SERVED[name]))
        for name in COMPONENTS
    ),
    *(
        Check(f"{name}-gates", f"{name} runs with the gates that the inventory wants", partial(_gates, name), (*_FOUND, f"{name}-healthy"))
        for name in COMPONENTS
    ),
    Check("changes-settled", "no change of daytwo is in flight or wants a hand", _settled),
)
CLUSTER_CHECKS = {
    "priority-classes": "the PriorityClasses are as the inventory declares them",
    "workload-classes": "the workloads have the class that the inventory gives them",
}


def node(found: Evidence, wishes: NodeDesired) -> list[Result]:
    """All checks of one node, in the order of the table. A node that could not be looked at has one result."""
    if found.why_not:
        return [Result(found.host, "looked-at", "unknown", found.why_not)]
    outcomes: dict[str, CheckOutcome] = {}
    blocked: set[str] = set()
    results = []
    for check in CHECKS:
        # What another check has not shown to hold leaves this one without ground; a check that does not apply is no obstacle.
        missing = [
            name
            for name in check.needs
            if outcomes[name] in ("fail", "unknown") or name in blocked or (outcomes[name] == "skip" and name in _WELL)
        ]
        verdict = CheckVerdict("skip", f"judged once {missing[0]} passes", waits=True) if missing else check.judge(found, wishes)
        if verdict.waits:
            blocked.add(check.name)
        outcomes[check.name] = verdict.outcome
        results.append(Result(found.host, check.name, verdict.outcome, verdict.why, verdict.waits or verdict.outcome != "skip"))
    return results


def cluster(desired: priority_classes.DesiredClasses | None, live: priority_classes.LiveClasses | str) -> list[Result]:
    """The checks of the cluster's objects; `live` is a text where they could not be read."""
    results = []
    for name in CLUSTER_CHECKS:
        classes = name == "priority-classes"
        wanted: Any = None if desired is None else desired.priority_classes if classes else desired.workloads
        if not wanted:
            verdict = _skip(f"the inventory declares no {'priority_classes' if classes else 'workloads'}")
        elif isinstance(live, str):
            verdict = CheckVerdict("unknown", live)
        else:
            unmet = [
                priority_classes.unmet_class(item, live.classes.get(item.name)) if classes else priority_classes.unmet_workload(item, live)
                for item in wanted
            ]
            verdict = _held(map(str, filter(None, unmet)), ", ".join(item.name if classes else item.key for item in wanted))
        results.append(Result(CLUSTER, name, verdict.outcome, verdict.why, verdict.outcome != "skip"))
    return results


def summary(results: Iterable[Result]) -> str:
    """`checks: 40 pass, 1 fail, 5 skip, 0 unknown`."""
    counts: Mapping[str, int] = Counter(result.outcome for result in results)
    return "checks: " + ", ".join(f"{counts.get(outcome, 0)} {outcome}" for outcome in ("pass", "fail", "unknown", "skip"))
