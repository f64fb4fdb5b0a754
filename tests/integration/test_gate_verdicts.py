"""daytwo's verdict on every gate of the catalogue, beside that of the real binaries of two minors; and who is left alone for a gate.

A binary is shown many gates at once wherever what it says of one cannot hang on the others (`disagreements` says why), for starting it
is what this costs; where it does not say what was expected, it is asked about halves, down to single gates.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from roles.engine.api.metrics import parse_feature_gates, parse_version
from roles.engine.editing.flags import effective_gates
from roles.engine.node import minor_of
from roles.feature_gates import COMPONENTS, SPECIAL, Level, Subject, judge_gate, load, overlay
from roles.feature_gates.catalogue import DEPENDENCIES_SINCE
from roles.feature_gates.hazards import KUBEADM
from roles.feature_gates.reported_gates import parse_help
from tests.integration import operator
from tests.integration.gate_exceptions import DEFAULTS, EXCEPTIONS
from tests.integration.operator import data, pyinfra
from tests.lab import Lab, binaries

# The newest minor, and one of before the dependencies.
OLDER = binaries.OLDER_VERSION
VERSIONS = (binaries.DEFAULT_VERSION, OLDER)
CATALOGUE = load()
# Names beside the catalogue's: kubeadm's own, and some that no minor has.
STRANGERS = (*KUBEADM, "NoSuchGate", "HPAScaleToZro", "hpascaletozero", "csimigrationrbd")
NAMES = (*CATALOGUE.gates, *SPECIAL, *STRANGERS)

_WARNED = re.compile(r'etting (?:GA|deprecated) feature gate(?:\. It [^"]*" featureGate="(\w+)"| (\w+)=)')
_LOCKED = re.compile(r"cannot set feature gate (\w+) to (true|false), feature is (?:locked to|PreAlpha at)")
_DEPENDS = re.compile(r"(\w+) is enabled, but depends on features that are disabled: \[([^\]]*)\]")
_UNKNOWN = re.compile(r"unrecognized feature gate: (\w+)")
_ACCEPTED = re.compile(r"error: invalid configuration: [mM]axPods \(--max-pods\) -1 must not be a negative number[,\"]")

# A start ends before there is much to collect, or to do side by side: threads of its own would cost half of its time. Nor is anybody
# interested in where in its code a kubelet panics.
ENVIRONMENT = {**os.environ, "GOGC": "off", "GOMAXPROCS": "1", "GOTRACEBACK": "none"}

# Scheduler and controller-manager of the older minor have the rules and the gates of its API server, and are asked by their command line, as it is.
# What each lists of its gates shows that the newest controller-manager has the gates of the API server, too.
REPEATED = {(OLDER, "kube-controller-manager"), (OLDER, "kube-scheduler"), (binaries.DEFAULT_VERSION, "kube-controller-manager")}
EACH = [
    pytest.param(version, component, marks=pytest.mark.slow if (version, component) in REPEATED else ())
    for version in VERSIONS
    for component in COMPONENTS
]

Gates = Mapping[str, bool]
Case = tuple[str, bool]


@dataclass(frozen=True)
class Binaries:
    """The four components of one version."""

    folder: Path
    minor: int
    scratch: Path

    def ask(self, component: str, gates: Gates, *more: str) -> tuple[Level, set[str], str]:
        """What a binary makes of a list of gates, those it warns of, and what it said."""
        written = ",".join(f"{name}={str(value).lower()}" for name, value in gates.items())
        if component == "kubelet":
            return self._ask_kubelet(gates)
        done = self.run(component, f"--feature-gates={written}", *more, "--version")
        warned = {one or other for one, other in _WARNED.findall(done.stderr)}
        return _level(done.returncode == 0, warned), warned, done.stderr

    def _ask_kubelet(self, gates: Gates) -> tuple[Level, set[str], str]:
        """By its configuration file, with one deliberate bad value: it complains of that alone, or of the gates before."""
        lines = ["apiVersion: kubelet.config.k8s.io/v1beta1", "kind: KubeletConfiguration", "failCgroupV1: false", "featureGates:"]
        lines += [f'  "{name}": {str(value).lower()}' for name, value in gates.items()]
        candidate = self.scratch / f"{abs(hash(tuple(gates.items())))}.yaml"
        candidate.write_text("\n".join(lines) + "\n")
        done = self.run("kubelet", f"--config={candidate}", "--max-pods=-1")
        candidate.unlink()
        assert done.returncode != 0, "a kubelet that was given a bad value runs"
        warned = {one or other for one, other in _WARNED.findall(done.stderr)}
        return _level(_ACCEPTED.search(done.stderr) is not None, warned), warned, done.stderr

    def run(self, component: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        words = [self.folder / component, *arguments]
        return subprocess.run(words, capture_output=True, text=True, timeout=600, check=False, env=ENVIRONMENT)


def _level(accepted: bool, warned: set[str]) -> Level:
    if not accepted:
        return Level.REFUSE
    return Level.WARN if warned else Level.ACCEPT


def reason(said: str) -> str:
    found = re.findall(r'^panic: .*$|err=".*"', said, re.MULTILINE)
    return found[-1][:300] if found else said.strip()[-300:]


@pytest.fixture(scope="module", params=VERSIONS)
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Binaries:
    version = str(request.param)
    cached = binaries.CACHE / "kubernetes" / f"v{version}-{binaries.architecture()}" / "complete"
    if not cached.exists() and os.environ.get("DAYTWO_LAB") != "1":
        pytest.skip(f"no binaries of {version} in the cache; `make test` gets them")
    folder = binaries.get(version)
    told = subprocess.run([folder / "kubelet", "--version"], capture_output=True, text=True, check=True).stdout
    if f"v{version}" not in told:
        pytest.skip(f"KUBE_BIN_DIR has {told.strip()}, not {version}")
    return Binaries(folder, int(version.split(".")[1]), tmp_path_factory.mktemp("kubelet"))


def ours(component: str, minor: int, gates: Gates, emulated: int | None = None) -> Level:
    """daytwo's verdict, with consent to all hazards: no binary knows of those."""
    return max((one.level for one in judge_gate(Subject(component, minor, emulated), gates, {}, consent=gates)), default=Level.ACCEPT)


def apart(cases: list[Case]) -> list[dict[str, bool]]:
    """Groups of cases such that for each two of them one group has the first without the second, and one the second without the first."""
    bits = range(max(1, (len(cases) - 1).bit_length()))
    halves = ([case for number, case in enumerate(cases) if number >> bit & 1 == side] for bit in bits for side in (0, 1))
    return [dict(half) for half in halves if half]


def disagreements(real: Binaries, component: str, emulated: int | None = None) -> dict[tuple[int, str, str, bool], str]:
    """Every gate with either value, where the verdicts differ.

    - A value that is the default anyway can change nothing for others, so all those that we take are shown to the binary at once.
    - Other values that we take: alone, a gate is refused where one that it depends on is off by default, or one that depends on it is on
      by default. In a group such a refusal is hidden only if that other one is in the group as well. So each of two gates is in some group
      without the other (`apart`), those turned on and those turned off in groups of their own: where all groups are taken, so is each alone.
    - Values that a lock, or the emulated minor, refuses: the binary names each, whatever else it is shown.
    - All others alone: of names that it does not know it tells one, and what a gate depends on must not be there by chance. Where it says
      that it does not know a name, it has looked at no value; the other one is shown to it only where it says anything else.
    """
    more = [f"--emulated-version=1.{emulated}"] if emulated else []
    subject = Subject(component, real.minor, emulated)
    # What a binary does not know at all it knows at no emulated minor either.
    names = NAMES if emulated is None else [*CATALOGUE.known(real.minor), *SPECIAL]
    cases: list[Case] = list(itertools.product(names, (True, False)))
    single = {case: ours(component, real.minor, dict([case]), emulated) for case in cases}
    stages = {name: subject.stage(name, CATALOGUE) for name in names}
    known = CATALOGUE.known(real.minor)
    # AllAlpha and AllBeta are about others.
    taken = [case for case in cases if single[case] < Level.REFUSE and case[0] not in SPECIAL]
    default = [(name, value) for name, value in taken if (stage := stages[name]) and stage.default == value]
    others = [case for case in taken if case not in default]
    refused = [case for case in cases if single[case] == Level.REFUSE]
    locked = [case for case in refused if (stage := stages[case[0]]) and stage.locked]
    named = [*locked, *(case for case in refused if emulated is not None and case[0] in known and stages[case[0]] is None)]
    found: dict[tuple[int, str, str, bool], str] = {}

    def alone(name: str, value: bool) -> bool:
        expected = single[(name, value)]
        told, _, said = real.ask(component, {name: value}, *more)
        if told != expected:
            found[(real.minor, component, name, value)] = f"daytwo: {expected.name}, {component}: {told.name}: {reason(said)}"
        return told == expected

    def stranger(name: str) -> None:
        """One that the catalogue says is not known: with one of its values, and with the other where that is not what is told."""
        first = len(name) % 2 == 0
        told, _, said = real.ask(component, {name: first}, *more)
        if told != Level.REFUSE or _UNKNOWN.findall(said)[-1:] != [name]:
            alone(name, first)
            alone(name, not first)

    def together(gates: dict[str, bool]) -> bool:
        """Whether it is as expected; what is not is in `found`."""
        if len(gates) == 1:
            return alone(*next(iter(gates.items())))
        told, warned, said = real.ask(component, gates, *more)
        expected = ours(component, real.minor, gates, emulated)
        expected_warned = {name for name, value in gates.items() if single[(name, value)] == Level.WARN}
        if told == expected < Level.REFUSE and warned == expected_warned:
            return True
        first, second = map(together, halves(gates))
        if first and second:  # so it is the one half beside the other
            case = (real.minor, component, ",".join(gates), all(gates.values()))
            found[case] = f"daytwo: {expected.name}, {component}: {told.name}: {reason(said)}"
        return False

    def not_taken(gates: dict[str, bool]) -> bool:
        """The same for gates that the binary names each."""
        if len(gates) == 1:
            return alone(*next(iter(gates.items())))
        told, _, said = real.ask(component, gates, *more)
        if told == Level.REFUSE and {(name, value == "true") for name, value in _LOCKED.findall(said)} == {*gates.items()}:
            return True
        first, second = map(not_taken, halves(gates))
        return first and second

    def on_or_off(cases: list[Case], value: bool) -> list[Case]:
        return [case for case in cases if case[1] is value]

    groups = [dict(default), *apart(on_or_off(others, True)), *apart(on_or_off(others, False))]
    grouped = {*default, *others, *named}
    asked = [lambda group=group: together(group) for group in groups if group]
    asked += [lambda group=group: not_taken(dict(group)) for group in (on_or_off(named, True), on_or_off(named, False)) if group]
    single_out = [case for case in cases if case not in grouped]
    strangers = {name for name, _ in single_out if name not in known and {(name, True), (name, False)} <= {*refused}}
    asked += [lambda name=name: stranger(name) for name in sorted(strangers)]
    asked += [lambda case=case: alone(*case) for case in single_out if case[0] not in strangers]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda ask: ask(), asked))
    return found


def halves(gates: dict[str, bool]) -> list[dict[str, bool]]:
    cases = list(gates.items())
    return [dict(cases[: len(cases) // 2]), dict(cases[len(cases) // 2 :])]


def standing(minor: int, component: str) -> set[tuple[int, str, str, bool]]:
    return {case for case in EXCEPTIONS if case[:2] == (minor, component)}


@pytest.mark.binaries
@pytest.mark.parametrize(("real", "component"), EACH, indirect=["real"])
def test_every_gate_with_either_value(real: Binaries, component: str) -> None:
    found = disagreements(real, component)
    news = {case: told for case, told in found.items() if case not in EXCEPTIONS}
    assert not news, "\n".join(f"{case}: {told}" for case, told in sorted(news.items()))
    gone = standing(real.minor, component) - {*found}
    assert not gone, f"these agree now; take them out of the exceptions: {sorted(gone)}"


@pytest.mark.binaries
def test_every_gate_of_a_component_that_behaves_as_an_older_minor(real: Binaries) -> None:
    if real.minor < 36:
        pytest.skip("emulation is shown on the newest minor")
    found = disagreements(real, "kube-apiserver", real.minor - 2)
    news = {case: told for case, told in found.items() if case not in EXCEPTIONS}
    assert not news, "\n".join(f"{case}: {told}" for case, told in sorted(news.items()))


@pytest.mark.binaries
@pytest.mark.parametrize("component", COMPONENTS)
def test_what_each_lists_of_its_gates(real: Binaries, component: str) -> None:
    """Alpha and Beta gates, each with its default: a wrong default could not be told from what is taken and what is not."""
    listed = parse_help(real.run(component, "--help").stdout)
    assert len(listed) > 100
    subject = Subject(component, real.minor)
    ours = {name: stage for name in CATALOGUE.gates if (stage := subject.stage(name, CATALOGUE)) and stage.stage in ("Alpha", "Beta")}
    ours |= SPECIAL
    differ = {name for name in {*listed, *ours} if listed.get(name) != ours.get(name)}
    assert differ == {name for minor, of, name in DEFAULTS if (minor, of) == (real.minor, component)}


def pairs() -> Iterable[tuple[str, str]]:
    """Every gate with each gate it depends on."""
    return ((name, other) for name, gate in CATALOGUE.gates.items() for other in gate.needs)


@pytest.mark.binaries
@pytest.mark.parametrize(("real", "component"), EACH, indirect=["real"])
def test_every_dependency(real: Binaries, component: str) -> None:
    """Both on, only the dependent one on, both off: the same verdict. Before 1.35 nobody checks, and one of the three is enough.

    Shown together are those of which the binary names each that it refuses (a lock, or a gate on while the other is off), and those
    taken with one gate on and the other off: the others of the group do not change what the two are.
    """
    values = ((True, True), (True, False), (False, False)) if real.minor >= DEPENDENCIES_SINCE else ((True, False),)
    cases = [{name: one, other: both} for name, other in pairs() for one, both in values]
    wrong: list[str] = []

    def alone(gates: Gates) -> None:
        expected = ours(component, real.minor, gates)
        told, _, said = real.ask(component, gates)
        if told != expected:
            wrong.append(f"{gates}: daytwo: {expected.name}, {component}: {told.name}: {reason(said)}")

    def together(group: list[Gates]) -> None:
        told, warned, said = real.ask(component, dict(case for gates in group for case in gates.items()))
        locked = {(name, value == "true") for name, value in _LOCKED.findall(said)}
        depends = {(name, other) for name, others in _DEPENDS.findall(said) for other in others.split()}
        for gates in group:
            by_name = bool(locked & gates.items()) or tuple(gates) in depends
            found = Level.REFUSE if by_name else Level.WARN if warned & gates.keys() else Level.ACCEPT
            if found != ours(component, real.minor, gates) or (told == Level.REFUSE) != by_name:
                alone(gates)

    def kind(gates: Gates) -> str:
        """What those have in common that may be shown together; nothing where it must be shown alone."""
        rules = {one.rule for one in judge_gate(Subject(component, real.minor), gates, {}, consent=gates) if one.level == Level.REFUSE}
        if "locked" in rules and rules <= {"locked", "dependency"}:
            return "locked"
        return (*rules, "taken")[0] if rules <= {"dependency"} and [*gates.values()] == [True, False] else ""

    groups: dict[str, list[list[Gates]]] = {}
    for gates in cases:
        of_kind = groups.setdefault(kind(gates), [])
        fitting = (group for group in of_kind if all(one.get(*case) is case[1] for one in group for case in gates.items()))
        group = next(fitting, None) if kind(gates) else None
        if group is None:
            of_kind.append(group := [])
        group.append(gates)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda group: together(group) if len(group) > 1 else alone(group[0]), itertools.chain(*groups.values())))
    assert not wrong, "\n".join(wrong)


@pytest.mark.binaries
@pytest.mark.parametrize("component", COMPONENTS)
def test_the_prefix(real: Binaries, component: str) -> None:
    name = next(
        name for name, gate in CATALOGUE.gates.items() if (stage := gate.at(real.minor)) and stage.stage == "Alpha" and not gate.needs
    )
    for gates in ({f"kube:{name}": True}, {f"kube:{name}": True, "AllBeta": False}):
        assert real.ask(component, gates)[0] == ours(component, real.minor, gates), gates


# ---- what a running component says


@pytest.mark.lab
@pytest.mark.parametrize(("component", "path"), [("kube-apiserver", "/metrics"), ("kubelet", "/api/v1/nodes/w1/proxy/metrics")])
def test_the_live_metrics_say_what_the_catalogue_says(lab: Lab, component: str, path: str) -> None:
    text = lab.kubectl("get", "--raw", path).encode()
    version, metrics = parse_version(text), parse_feature_gates(text)
    minor = minor_of(version or "")
    assert minor is not None and len(metrics) > 150
    running = {name: value for word in operator.processes(lab, "cp1")[component] for name, value in effective_gates([word]).items()}
    assert overlay(component, minor, metrics, {}, running) == {}
    some = next(name for name in metrics if name not in SPECIAL)
    others = {name: metric for name, metric in metrics.items() if name != some}
    assert overlay(component, minor, others, {}, running) == {some: None}


# ---- only what must


@pytest.mark.lab
def test_a_gate_that_only_the_kubelet_reads_leaves_the_control_plane_as_it_was(lab: Lab) -> None:
    gate = "PodAndContainerStatsFromCRI"
    stage = "stat -c '%n %Y %Z %i' /etc/kubernetes/manifests/*"
    before, files, manifests = operator.processes(lab, "cp1"), operator.files(lab, "cp1"), lab.run("cp1", stage).stdout
    on = pyinfra("feature_gates", "-y", *data(feature_gates=f"{gate}=true", all_components="false", only="cp1"))
    try:
        assert on.code == 0, on.all
        after = operator.processes(lab, "cp1")
        assert {name: after[name] for name in operator.COMPONENTS} == {name: before[name] for name in operator.COMPONENTS}
        assert lab.run("cp1", stage).stdout == manifests
        assert after["kubelet"][:2] != before["kubelet"][:2] and operator.effective(lab, "cp1", gate)
        for component in operator.COMPONENTS:
            assert f"LEFT OUT cp1: {component} is not changed for {gate}: it does not read it (kubelet does)" in on.plan
            assert re.search(rf"^cp1 +{component} +{gate} +- +- +left out +- +it does not read it", on.out, re.MULTILINE), on.out
    finally:
        absent = pyinfra("feature_gates", "-y", *data(feature_gates=f"{gate}=absent", all_components="false", only="cp1"), brief=True)
    assert absent.code == 0, absent.all
    assert operator.files(lab, "cp1") == files and lab.run("cp1", stage).stdout == manifests
