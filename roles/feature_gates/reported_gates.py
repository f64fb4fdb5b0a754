"""What a running component says of its own gates, against what the catalogue says of its minor: its word counts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from roles.engine.api import GateMetric
from roles.feature_gates.catalogue import SPECIAL, Catalogue, GateStage, StageName, load

# Labels of kubernetes_feature_enabled, and of --help, which lists ALPHA and BETA gates only.
_STAGES: Mapping[str, StageName] = {"ALPHA": "Alpha", "BETA": "Beta", "": "GA", "DEPRECATED": "Deprecated"}
_LISTED = re.compile(r"(?:kube:)?(\w+)=true\|false \((ALPHA|BETA) - default=(true|false)\)")


def parse_help(text: str) -> dict[str, GateStage]:
    """The gates that a component lists behind --help, with stage and default."""
    return {name: GateStage(_STAGES[stage], default == "true") for name, stage, default in _LISTED.findall(text)}


def overlay(
    component: str,
    minor: int,
    metrics: Mapping[str, GateMetric],
    listed: Mapping[str, GateStage],
    running: Mapping[str, bool],
    emulated: int | None = None,
    catalogue: Catalogue | None = None,
) -> dict[str, GateStage | None]:
    """Gates of which a component tells another stage or default than the catalogue has; None: it does not know that gate.

    `metrics` are all its gates (empty: they could not be read, and nothing is missed then); `listed` what its --help lists (empty:
    not asked); `running` the gates set on it, whose values say nothing about defaults.
    """
    table = catalogue or load()
    found: dict[str, GateStage | None] = {}
    for name in {*metrics, *listed, *table.known(minor)} - {*SPECIAL}:
        gate = table.gate(name)
        expected = gate.at(minor, emulated) if gate and component not in gate.unknown_to else None
        told = _told(name, metrics, listed, running, expected)
        if told != expected:
            found[name] = told
    return found


def _told(
    name: str, metrics: Mapping[str, GateMetric], listed: Mapping[str, GateStage], running: Mapping[str, bool], expected: GateStage | None
) -> GateStage | None:
    metric = metrics.get(name)
    if metric is None and metrics:
        return None
    stage = _STAGES.get(metric.stage) if metric else None
    by_help = listed.get(name)
    if by_help is not None:
        return _with(by_help, expected)
    if metric is None or stage is None:
        return expected
    if name in running or {*SPECIAL} & {*running}:
        default = expected.default if expected else False
    else:
        default = metric.enabled
    return _with(GateStage(stage, default), expected)


def _with(told: GateStage, expected: GateStage | None) -> GateStage:
    """A lock is not told; it is as expected where the rest is."""
    same = expected is not None and (told.stage, told.default) == (expected.stage, expected.default)
    return expected if same and expected is not None else told


def differences(
    component: str, minor: int, live: Mapping[str, GateStage | None], names: Iterable[str], emulated: int | None = None
) -> list[str]:
    """The differences that concern some gates, one sentence each."""
    table = load()
    sentences = []
    for name in names:
        if name not in live:
            continue
        gate = table.gate(name)
        expected = gate.at(minor, emulated) if gate else None
        its, ours = _said(live[name]), _said(expected)
        sentences.append(f"{name}: the catalogue of gates says {ours} for 1.{minor}, this {component} says {its}: its word counts")
    return sentences


def _said(stage: GateStage | None) -> str:
    return "unknown" if stage is None else f"{stage.stage}, {'on' if stage.default else 'off'} by default"
