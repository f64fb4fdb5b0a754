"""How a change of an API object ended that did not come to what was wanted. `outcome` is the word for it in tables and records."""

from __future__ import annotations

from typing import ClassVar

from roles.engine.rollout import Outcome


class NotDone(Exception):
    """A write that did not come to what was wanted; says why."""

    outcome: ClassVar[Outcome] = "failed"


class Unknown(NotDone):
    """A write that may have been carried out and may not, and its object does not tell; says what was tried."""

    outcome = "unknown"


class WriteRefused(NotDone):
    """The API server refused the request, so nothing was changed; says why."""


class Gone(NotDone):
    """The object went away in the middle: there is nothing to put back."""

    outcome = "gone"


class Undone(NotDone):
    """All is as it was before; says how that was seen."""

    outcome = "reverted"


class Foreign(NotDone):
    """Somebody else has changed it since: it is left as they have it; says how that is."""

    outcome = "foreign"


class RevertFailed(Exception):
    """What was begun could neither be done nor undone; says what to do by hand."""

    outcome: ClassVar[Outcome] = "revert-failed"
