"""Why a plan is refused. Refusals are collected over all nodes, shown together, and stop the run before any write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

from roles.engine.folding import listed
from roles.engine.transaction.mask import mask_text


class Refusal(Exception):
    """One reason to refuse: the host, what was found, the rule, the way out; one or two sentences. Secrets are masked. `file`: of the host,
    if one file is the reason. `mistake`: a mistake of the operator that several refuse, its way out first; `by`: who of the host refuses
    it, such as kubelet."""

    def __init__(self, host: str, message: str, way_out: str = "", file: str | None = None, mistake: str = "", by: str = "") -> None:
        # The refused value may be a secret.
        self.host, self.message, self.way_out, self.file = host, mask_text(message), mask_text(way_out), file
        self.mistake, self.by = mask_text(mistake), by
        super().__init__(f"{host}: {self.text}")

    @classmethod
    def of(cls, host: str, problems: Iterable[object]) -> Self:
        """For what was found already, with the host or without."""
        return cls(host, "; ".join(str(one).removeprefix(f"{host}: ") for one in problems))

    @staticmethod
    def texts(reasons: Iterable[object]) -> list[str]:
        """The reasons as text; a mistake that several refuse is one, with all who do: `kube-apiserver on cp1; kubelet on cp1, w1`."""
        by_mistake: dict[str, list[Refusal]] = {}
        found: list[object] = []
        for reason in reasons:
            mistake = reason.mistake if isinstance(reason, Refusal) else ""
            if not mistake:
                found.append(reason)
            elif isinstance(reason, Refusal):
                by_mistake.setdefault(mistake, []).append(reason)
        return [*(f"{mistake}. Refused by {_who(refusals)}" for mistake, refusals in by_mistake.items()), *map(str, found)]

    @property
    def text(self) -> str:
        """The refusal without its host."""
        return f"{self.message}; {self.way_out}" if self.way_out else self.message


def _who(refusals: Sequence[Refusal]) -> str:
    hosts: dict[str, list[str]] = {}
    for one in refusals:
        hosts.setdefault(one.by, []).append(one.host)
    names: dict[tuple[str, ...], list[str]] = {}
    for by, of in hosts.items():
        names.setdefault(tuple(dict.fromkeys(of)), []).append(by)
    return "; ".join(f"{', '.join(by)} on {listed(of)}" for of, by in names.items())
