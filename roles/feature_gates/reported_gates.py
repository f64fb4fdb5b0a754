"""Compares the gates that a running component reports with the catalogue's for its minor: the report overrides the catalogue. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from roles.engine.api import GateMetric
from roles.feature_gates.catalogue import SPECIAL, Catalogue, GateStage, StageName, load

# Labels of kubernetes_feature_enabled, and of --help, which only lists ALPHA and BETA gates.
_STAGES: Mapping[str, StageName] = {"ALPHA": "Alpha", "BETA": "Beta", "": "GA", "DEPRECATED": "Deprecated"}
_LISTED = re.compile(r"(?:kube:)?(\w+)=true\|false \((ALPHA|BETA) - default=(true|false)\)")


def parse_help(text: str) -> dict[str, GateStage]:
    """The gates in the output of a component's --help, with stage and default."""
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
    """Gates whose reported stage or default differs from the catalogue; None: the component does not know that gate.

    `metrics` are all its gates (empty: they could not be read, and then no gate counts as unknown); `listed` the gates in its --help
    (empty: it was not read); `running` the gates set on it, whose values say nothing about defaults.
    """
    table = catalogue or load()
    found: dict[str, GateStage | None] = {}
    for name in {*metrics, *listed, *table.known(minor)} - {*SPECIAL}:
        gate = table.gate(name)
        expected = gate.at(minor, emulated) if gate and component not in gate.unknown_to else None
        reported = _reported(name, metrics, listed, running, expected)
        if reported != expected:
            found[name] = reported
    return found


def _reported(
    name: str, metrics: Mapping[str, GateMetric], listed: Mapping[str, GateStage], running: Mapping[str, bool], expected: GateStage | None
) -> GateStage | None:
    metric = metrics.get(name)
    if metric is None and metrics:
        return None
    stage = _STAGES.get(metric.stage) if metric else None
    by_help = listed.get(name)
    if by_help is not None:
        return _with_lock(by_help, expected)
    if metric is None or stage is None:
        return expected
    if name in running or {*SPECIAL} & {*running}:
        default = expected.default if expected else False
    else:
        default = metric.enabled
    return _with_lock(GateStage(stage, default), expected)


def _with_lock(reported: GateStage, expected: GateStage | None) -> GateStage:
    """Components do not report locks: the lock is the expected one if stage and default are."""
    same = expected is not None and (reported.stage, reported.default) == (expected.stage, expected.default)
    return expected if same and expected is not None else reported


def differences(
    component: str, minor: int, live: Mapping[str, GateStage | None], names: Iterable[str], emulated: int | None = None
) -> list[str]:
    """The differences of the gates `names`, one sentence each."""
    table = load()
    sentences = []
    for name in names:
        if name not in live:
            continue
        gate = table.gate(name)
        expected = gate.at(minor, emulated) if gate else None
        reported, listed = _text(live[name]), _text(expected)
        sentences.append(
            f"{name}: the catalogue of gates says {listed} for 1.{minor}, this {component} reports {reported}: its report counts"
        )
    return sentences


def _text(stage: GateStage | None) -> str:
    return "unknown" if stage is None else f"{stage.stage}, {'on' if stage.default else 'off'} by default"
