"""Pure: the thresholds that are wanted, held against those that the kubelet uses. For looking, without a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roles.eviction import wanted
from roles.eviction.model import Desired
from roles.kubelet import Kubelet
from roles.kubelet.thresholds import DEFAULT_HARD
from roles.proof import settings_differences


def unmet(desired: Desired, kubelet: Kubelet, configuration: Mapping[str, Any]) -> list[str]:
    """Why a kubelet that shows `configuration` at /configz does not use the thresholds that are wanted; [] where it does."""
    defaults = defaults_of(kubelet)
    changing = wanted.fields(desired, configuration, defaults)
    expected = wanted.expected(desired, configuration, defaults)
    return settings_differences({name: expected[name] for name in changing}, configuration)


def defaults_of(kubelet: Kubelet) -> Mapping[str, str]:
    """Without --config the kubelet has no default thresholds (cmd/kubelet/app/options: applyLegacyDefaults)."""
    return DEFAULT_HARD if kubelet.config_path else {}
