"""How a failed change of an API object ended. `outcome` is the word for it in tables and records."""

from __future__ import annotations

from typing import ClassVar

from roles.engine.context import Outcome

#: Of an object that somebody deleted: it is not daytwo's to bring back.
DELETED_SINCE = "it was deleted after daytwo read it; run this again"
NOTHING_TO_REVERT = "it was deleted meanwhile, so there is nothing to revert"


class NotDone(Exception):
    """The object does not have the desired state; says why."""

    outcome: ClassVar[Outcome] = "failed"


class Unknown(NotDone):
    """The API server may or may not have applied the write, and the object does not show which; says what was tried."""

    outcome = "unknown"


class WriteRefused(NotDone):
    """The API server refused the request, so nothing changed; says why."""


class Gone(NotDone):
    """The object was deleted during the change: there is nothing to revert."""

    outcome = "gone"


class Undone(NotDone):
    """The change is reverted; says how that is proven."""

    outcome = "reverted"


class ChangedByOthers(NotDone):
    """Someone else has changed the object since, and daytwo leaves it; says how it is now."""

    outcome = "foreign"


class RevertFailed(Exception):
    """The change could neither be finished nor reverted; says how to repair it by hand."""

    outcome: ClassVar[Outcome] = "revert-failed"
