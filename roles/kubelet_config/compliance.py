"""Pure: compares the desired fields with what the kubelet runs with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roles.engine.kubelet import Kubelet, KubeletState
from roles.engine.proof.effective import UnmetField, unmet_fields
from roles.kubelet_config.model import DesiredFields
from roles.kubelet_config.plan import settle


def unmet(desired: DesiredFields, kubelet: Kubelet, configuration: Mapping[str, Any]) -> list[UnmetField]:
    """The fields that differ on a kubelet which shows `configuration` at /configz. Raises Refusal for fields that it cannot have."""
    settled = settle(desired, KubeletState(kubelet.seen.host, kubelet, dict(configuration), {}, [], {}))
    return unmet_fields(settled.expected, configuration)
