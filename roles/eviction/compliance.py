"""Pure: compares the desired thresholds with those that the kubelet uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from roles.engine.kubelet import Kubelet
from roles.engine.kubelet.thresholds import DEFAULT_HARD
from roles.engine.proof.effective import UnmetField, unmet_fields
from roles.eviction import wanted
from roles.eviction.model import DesiredThresholds


def unmet(desired: DesiredThresholds, kubelet: Kubelet, configuration: Mapping[str, Any]) -> list[UnmetField]:
    """The fields, and the signals of maps, that differ on a kubelet which shows `configuration` at /configz."""
    defaults = defaults_of(kubelet)
    expected = wanted.expected(desired, configuration, defaults)
    problems: list[UnmetField] = []
    for name in wanted.fields(desired, configuration, defaults):
        if name in wanted.MAPS:
            problems += _signals(name, wanted.texts(expected, name), wanted.texts(wanted.shown(configuration), name))
        else:
            problems += unmet_fields({name: expected[name]}, configuration)
    return problems


def _signals(name: str, expected: Mapping[str, str], found: Mapping[str, str]) -> Iterator[UnmetField]:
    # Compared as the kubelet reads them: 0% and a missing signal both mean off.
    expected_values, found_values = wanted.enabled(name, expected), wanted.enabled(name, found)
    for signal in {**expected, **found}:
        if expected_values.get(signal) != found_values.get(signal):
            yield UnmetField(name, expected.get(signal), found.get(signal), signal)


def defaults_of(kubelet: Kubelet) -> Mapping[str, str]:
    """Without --config the kubelet has no default thresholds (cmd/kubelet/app/options: applyLegacyDefaults)."""
    return DEFAULT_HARD if kubelet.config_path else {}
