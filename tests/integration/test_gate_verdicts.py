"""daytwo's verdict on every gate of the catalogue, beside that of the real binaries of two minors; and who is left alone for a gate."""

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

from roles.api import parse_feature_gates, parse_version
from roles.feature_gates.catalogue import DEPENDENCIES_SINCE, SPECIAL, load
from roles.feature_gates.hazards import KUBEADM
from roles.feature_gates.model import COMPONENTS
from roles.feature_gates.told import overlay, parse_help
from roles.feature_gates.verdict import Level, Subject, judge, level
from roles.formats.flags import effective_gates
from roles.observe import minor_of
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
_ACCEPTED = re.compile(r"error: invalid configuration: [mM]axPods \(--max-pods\) -1 must not be a negative number[,\"]")

Gates = Mapping[str, bool]


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
        return subprocess.run([self.folder / component, *arguments], capture_output=True, text=True, timeout=120, check=False)


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
    return level(judge(Subject(component, minor, emulated), gates, {}, consent=gates))


def disagreements(real: Binaries, component: str, emulated: int | None = None) -> dict[tuple[int, str, str, bool], str]:
    """Every gate with either value, where the verdicts differ.

    A value that is the default anyway can change nothing for others, so all those that we take are shown to the binary at once (and in
    halves where it takes one of them differently); each other value alone, for what it depends on must not be there by chance.
    """
    more = [f"--emulated-version=1.{emulated}"] if emulated else []
    subject = Subject(component, real.minor, emulated)
    # What a binary does not know at all it knows at no emulated minor either.
    names = NAMES if emulated is None else [*CATALOGUE.known(real.minor), *SPECIAL]
    cases = list(itertools.product(names, (True, False)))
    at_once = {
        name: value
        for name, value in cases
        if (stage := subject.stage(name, CATALOGUE))
        and stage.default == value
        and ours(component, real.minor, {name: value}, emulated) < Level.REFUSE
    }
    found: dict[tuple[int, str, str, bool], str] = {}

    def alone(name: str, value: bool) -> None:
        expected = ours(component, real.minor, {name: value}, emulated)
        told, _, said = real.ask(component, {name: value}, *more)
        if told != expected:
            found[(real.minor, component, name, value)] = f"daytwo: {expected.name}, {component}: {told.name}: {reason(said)}"

    def together(gates: dict[str, bool]) -> None:
        told, warned, _ = real.ask(component, gates, *more)
        expected = {name for name, value in gates.items() if ours(component, real.minor, {name: value}, emulated) == Level.WARN}
        if told < Level.REFUSE and warned == expected:
            return
        names = list(gates)
        if len(names) == 1:
            return alone(names[0], gates[names[0]])
        for half in (names[: len(names) // 2], names[len(names) // 2 :]):
            together({name: gates[name] for name in half})

    together(at_once)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda case: alone(*case), [case for case in cases if at_once.get(case[0]) is not case[1]]))
    return found


def standing(minor: int, component: str) -> set[tuple[int, str, str, bool]]:
    return {case for case in EXCEPTIONS if case[:2] == (minor, component)}


@pytest.mark.binaries
@pytest.mark.parametrize("component", COMPONENTS)
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
@pytest.mark.parametrize("component", COMPONENTS)
def test_every_dependency(real: Binaries, component: str) -> None:
    """Both on, only the dependent one on, both off: the same verdict. Before 1.35 nobody checks, and one of the three is enough."""
    values = ((True, True), (True, False), (False, False)) if real.minor >= DEPENDENCIES_SINCE else ((True, False),)
    cases = [{name: one, other: both} for name, other in pairs() for one, both in values]

    def differs(gates: dict[str, bool]) -> str:
        expected = ours(component, real.minor, gates)
        told, _, said = real.ask(component, gates)
        return "" if told == expected else f"{gates}: daytwo: {expected.name}, {component}: {told.name}: {reason(said)}"

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = [told for told in pool.map(differs, cases) if told]
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
    on = pyinfra("feature_gates", "-y", *data(feature_gates=f"{gate}=true", all_components="false", only="cp1,w1"))
    try:
        assert on.code == 0, on.all
        after = operator.processes(lab, "cp1")
        assert {name: after[name] for name in operator.COMPONENTS} == {name: before[name] for name in operator.COMPONENTS}
        assert lab.run("cp1", stage).stdout == manifests
        assert after["kubelet"][:2] != before["kubelet"][:2] and all(operator.effective(lab, node, gate) for node in ("cp1", "w1"))
        for component in operator.COMPONENTS:
            assert f"LEFT OUT cp1: {component} is left as it is for {gate}: it does not read it (kubelet does)" in on.plan
            assert re.search(rf"^cp1 +{component} +{gate} +- +- +left out +- +it does not read it", on.out, re.MULTILINE), on.out
    finally:
        absent = pyinfra("feature_gates", "-y", *data(feature_gates=f"{gate}=absent", all_components="false", only="cp1,w1"))
    assert absent.code == 0, absent.all
    assert operator.files(lab, "cp1") == files and lab.run("cp1", stage).stdout == manifests
