"""What a look at a node tells of changes in flight."""

from __future__ import annotations

from roles.engine.transaction import in_flight

HOLDER = {"run": "r1", "who": "ann@desk", "command": "pyinfra inv deploy"}


def test_an_unconfirmed_change_says_when_it_reverts() -> None:
    found = in_flight({"r1-w1-kubelet": {"state": "applied", "boot": "b", "deadline": "130", **HOLDER}}, "b", 100.7)
    assert [*map(str, found)] == ["change r1-w1-kubelet is unconfirmed, reverts in 30 s (run r1, by ann@desk, `pyinfra inv deploy`)"]


def test_after_a_restart_it_reverts_now() -> None:
    assert "reverts now" in in_flight({"a": {"state": "applied", "boot": "old", "deadline": "130", **HOLDER}}, "b", 5)[0].text


def test_other_states() -> None:
    changes = {
        name: {"state": name, **HOLDER}
        for name in ("staged", "confirmed", "reverted", "refused", "abandoned", "reverting", "revert-failed")
    }
    found = in_flight({**changes, "lost": HOLDER}, "b", 5)
    assert [(one.name, one.state) for one in found] == [("lost", None), ("revert-failed", "revert-failed"), ("reverting", "reverting")]
    assert "retries" in found[1].text and "record is gone" in found[0].text


def test_a_deadline_that_is_over_is_not_negative() -> None:
    assert "in 0 s" in in_flight({"a": {"state": "applying", "boot": "b", "deadline": "10", **HOLDER}}, "b", 50)[0].text
