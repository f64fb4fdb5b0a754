"""Pure: the thresholds that are wanted, held against those that the kubelet uses. For looking, without a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roles.eviction import wanted
from roles.eviction.model import Desired
from roles.kubelet import Kubelet, same_setting
from roles.kubelet.thresholds import DEFAULT_HARD, DISABLING
from roles.proof import settings_differences


def unmet(desired: Desired, kubelet: Kubelet, configuration: Mapping[str, Any]) -> list[str]:
    """Why a kubelet that shows `configuration` at /configz does not use the thresholds that are wanted; [] where it does."""
    defaults = defaults_of(kubelet)
    changing = wanted.fields(desired, configuration, defaults)
    expected = wanted.expected(desired, configuration, defaults)
    problems = []
    for name in changing:
        should, has = expected[name] or {}, configuration.get(name) or {}
        if isinstance(should, Mapping) and isinstance(has, Mapping):
            # Signal by signal; one that is off is written as 0% and is no difference.
            signals = [signal for signal in {**should, **has} if not _same(should.get(signal), has.get(signal))]
            problems += [
                f"{name}: {signal} is {has.get(signal, '(not set)')}, wanted {should.get(signal, '(not set)')}" for signal in signals
            ]
        else:
            problems += settings_differences({name: expected[name]}, configuration)
    return problems


def _same(one: str | None, other: str | None) -> bool:
    off = (None, *DISABLING)
    return same_setting(one, other) or (one in off and other in off)


def defaults_of(kubelet: Kubelet) -> Mapping[str, str]:
    """Without --config the kubelet has no default thresholds (cmd/kubelet/app/options: applyLegacyDefaults)."""
    return DEFAULT_HARD if kubelet.config_path else {}
