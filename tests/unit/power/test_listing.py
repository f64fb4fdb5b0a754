"""The table of the power of all hosts, from its document."""

from __future__ import annotations

from typing import Any

from roles.engine.findings import Severity
from roles.power.listing import DueReport, HostReport, PowerReport, text
from roles.sleeping import SleepRule

DUE = DueReport(due=SleepRule.VERSION, severity=Severity.critical, at=None, why="its kubelet 1.32 is too old for the API server 1.36")
NOTE = DueReport(due=SleepRule.A_YEAR, severity=Severity.note, at="2027-11-28T13:00:00+00:00", why="a year")


def host(name: str, **more: Any) -> HostReport:
    return HostReport(host=name, driver="ipmi bmc:623", **{"bmc": "off", "node": name, **more})


def test_a_row_for_each_and_below_it_what_cannot_wait() -> None:
    off = {"mark": "power-off by run r1", "off": True, "lease_seconds": 7200, "dues": (DUE, NOTE)}
    hosts = (
        host("w1", **off, wake_by="2027-10-23T01:00:00+00:00", waiting=("r2", "r\x1b[31m3")),
        host("w2", bmc=None, ready=True, lease_seconds=5),
        host("w3", bmc="unknown", bmc_why="no answer", node=None),
        host("w4", off=True, lease_why="never renewed"),
    )
    made = text(PowerReport(made="2026-11-28T13:00:00+00:00", hosts=hosts, not_known=("w9: no answer",)))
    rows = [" ".join(line.split()) for line in made.splitlines()]
    assert rows[2:6] == [
        "w1 ipmi bmc:623 off NotReady 2h old power-off by run r1 2027-10-23",
        "w2 ipmi bmc:623 cannot be asked Ready 5s old - -",
        "w3 ipmi bmc:623 NOT KNOWN: no answer no such Node - - -",
        "w4 ipmi bmc:623 off NotReady never renewed - NOT KNOWN",
    ]
    assert rows[6].startswith("critical: w1: its kubelet 1.32 is too old for the API server 1.36; wake it, and upgrade its kubelet")
    assert "(r2, r\\x1b[31m3)" in rows[7] and rows[8] == "not known: w9: no answer" and "a year" not in made
