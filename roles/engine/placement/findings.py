"""Pure: what was found about one pod on one node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

State = Literal["fits", "waits", "unsure", "no", "not judged"]


@dataclass(frozen=True)
class Verdict:
    """One node: `no`: the scheduler does not place the pod there; `waits`: it does, and the pod does not start there as long as pods that
    stay keep its volume on another node; `unsure`: it depends on where other pods go; `not judged`: on something that daytwo does not
    model. `why`: the reasons."""

    state: State
    why: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.state}: {', '.join(self.why)}" if self.why else self.state


@dataclass
class Findings:
    """The reasons by their kind. `local`: those that only hold if other pods go to this very node."""

    no: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)
    local: list[str] = field(default_factory=list)

    def verdict(self) -> Verdict:
        if self.no:
            return Verdict("no", tuple(self.no))
        if self.unknown:
            return Verdict("not judged", tuple(self.unknown))
        if self.waits:
            return Verdict("waits", tuple(self.waits))
        if self.unsure or self.local:
            return Verdict("unsure", (*self.unsure, *self.local))
        return Verdict("fits")
