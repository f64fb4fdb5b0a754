"""What the operator's side says to a node about a change that is applied, and what the node says about its end. Pure."""

from __future__ import annotations

import base64
import json

from roles.engine.context import Outcome
from roles.engine.proof import Proof
from roles.engine.transaction import Status
from roles.engine.transaction.record import end_record


def refusal_text(proof: Proof) -> str:
    return "not proven: " + "; ".join(proof.problems)


def encoded_end(change_id: str, proof: Proof, seconds: float) -> str:
    """The record of a confirmed change, for the node."""
    record = end_record(change_id, "confirmed", "", proof.how, seconds)
    return base64.b64encode(json.dumps(record).encode()).decode()


def verdict(change_id: str, proof: Proof, seconds: float) -> str:
    """The line that a node waits for."""
    if proof.problems:
        return f"revert {' '.join(refusal_text(proof).split())}\n"
    return f"confirm {encoded_end(change_id, proof, seconds)}\n"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def outcome_of(status: Status) -> Outcome:
    match status.state:
        case "confirmed" | "reverted" | "revert-failed" | "refused":
            return status.state
        case "staged":
            return "refused"
        case _:
            return "unknown"
