"""The cluster's time, which decides whether an allowed eviction still counts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from roles.engine.api import Api, Forbidden
from roles.engine.disruption import cluster_time


class Clock:
    """An API server that says who asks, and when; `refuses`: it does not."""

    def __init__(self, moment: Any, *leases: str, refuses: bool = False) -> None:
        self.moment, self.leases, self.refuses = moment, leases, refuses

    def create(self, path: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        assert path == "/apis/authentication.k8s.io/v1/selfsubjectreviews" and manifest["kind"] == "SelfSubjectReview"
        if self.refuses:
            raise Forbidden("cp1", path, "403 Forbidden", "-")
        return {"metadata": {"creationTimestamp": self.moment}}

    def get_json(self, path: str, timeout: float = 0, *, wait: float = 0) -> dict[str, Any]:
        return {"items": [{"metadata": {"name": "n"}, "spec": {"renewTime": one}} for one in self.leases]}


def asked(clock: Clock) -> datetime:
    return cluster_time(cast(Api, clock))


def test_it_is_the_api_servers() -> None:
    assert asked(Clock("2026-03-01T12:00:00Z", "2027-01-01T00:00:00Z")) == datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("clock", [
    Clock("", "2026-03-01T12:00:00.5Z", "never", "2026-03-01T11:00:00Z", refuses=True),
    Clock(None, "2026-03-01T12:00:00.5Z"),
])  # fmt: skip
def test_without_it_the_newest_lease_counts(clock: Clock) -> None:
    assert asked(clock) == datetime(2026, 3, 1, 12, 0, 0, 500000, tzinfo=UTC)


def test_without_leases_it_is_this_machines() -> None:
    assert abs((asked(Clock(None)) - datetime.now(UTC)).total_seconds()) < 60
