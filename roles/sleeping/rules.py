"""The due dates of machines that daytwo turned off: docs/power.md has this table. Pure."""

from __future__ import annotations

from roles.engine.findings import Rule, Severity

_C, _W, _N = Severity


# fmt: off
class SleepRule(Rule):
    """A note, a warning from some time before the date on, critical from the date on. The severity of a row is that without a date."""

    CERTIFICATE = ("client-certificate", _W,
        "90 % of the life of its kubelet's client certificate: a kubelet that starts later renews at once, one that starts after its end "
        "joins only with a new bootstrap token. 36 days after its power off, if nobody has read the certificate", "wake it")
    AUTHORITY = ("ca", _W,
        "30 days before the end of the CA by which it knows the API server (a warning from 180 days before): it must be awake to get the "
        "next one", "wake it, and leave it on until the CA is replaced")
    A_YEAR = ("a-year", _W, "a year off: nobody knows whether the machine still starts", "wake it")
    VERSION = ("version-skew", _W,
        "its kubelet is too old for the API server (critical), or for the next minor of it (a warning), by the version skew policy",
        "wake it, and upgrade its kubelet while it is cordoned")
# fmt: on
