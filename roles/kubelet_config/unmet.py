"""Pure: the fields that are wanted, held against what the kubelet runs with. For looking, without a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roles.change.refusal import Refusal
from roles.kubelet import Kubelet
from roles.kubelet_config.model import Desired
from roles.kubelet_config.plan import settle
from roles.kubelet_config.state import State
from roles.proof import settings_differences


def unmet(desired: Desired, kubelet: Kubelet, configuration: Mapping[str, Any]) -> list[str]:
    """Why a kubelet that shows `configuration` at /configz does not run with the fields that are wanted; [] where it does. What could
    not be had on this kubelet at all is one of the reasons."""
    try:
        settled = settle(desired, State(kubelet.seen.host, kubelet, dict(configuration), {}, [], {}))
    except Refusal as refusal:
        return [refusal.message]
    return settings_differences(settled.expected, configuration)
