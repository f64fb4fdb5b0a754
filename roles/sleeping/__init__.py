"""Machines that daytwo turned off: until when each may stay off, and what waits for it (docs/power.md, Due dates)."""

from roles.sleeping.dates import POWER_OFF, Asleep, Due, Ends, asleep, due_now, findings, siblings, waiting, wake_by
from roles.sleeping.reading import newest_minor, read_ends
from roles.sleeping.rules import SleepRule

__all__ = [
    "POWER_OFF",
    "Asleep",
    "Due",
    "Ends",
    "SleepRule",
    "asleep",
    "due_now",
    "findings",
    "newest_minor",
    "read_ends",
    "siblings",
    "waiting",
    "wake_by",
]
