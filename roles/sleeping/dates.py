"""Until when a machine that daytwo turned off may stay off. Pure.

A kubelet that runs renews its client certificate when 70 to 90 % of its life are over (client-go/util/certificate, nextRotationDeadline):
one that starts after that renews at once. One that starts after the end joins only with a new bootstrap token. So a machine is woken when
90 % are over: it renews, and may be turned off again.

The dates are in the mark on the Node, read from the machine before its shutdown. Whoever can write the Node can write them: they count only
as they make sense, and never later than a year after the cordon, whose time is the API server's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from roles.engine.bounds import EARLIEST, moment, span
from roles.engine.commands import command
from roles.engine.findings import Finding, Place, Severity
from roles.engine.harmless import one_line
from roles.engine.kube import Object, is_ready
from roles.engine.kube.fields import kubelet_version, name_of
from roles.engine.node import minor_of
from roles.engine.outage import Mark, node_fate, read_mark
from roles.engine.proof import skew
from roles.engine.runs import ChangeReport
from roles.sleeping.rules import SleepRule

#: The purpose of a power off in a mark.
POWER_OFF = "power-off"
#: The share of a certificate's life that is left when a kubelet that runs has renewed it.
_LEFT = 0.1
_DAY = 86400.0
#: Certificates last a year by default (kube-controller-manager, --cluster-signing-duration): so much is left of one that nobody has read.
_UNREAD = span(36 * _DAY)
#: Before the end of a CA all nodes must be awake to get the next one, whose introduction takes weeks.
_AUTHORITY, _AUTHORITY_SOON = span(30 * _DAY), span(180 * _DAY)
#: Nobody knows whether a machine still starts that has not for so long; and no text in a mark may put its due date off further.
_LONGEST = span(365 * _DAY)
#: From when on a due date is a warning: so long before it, at most a fourth of the time that the machine may be off.
_SOON = span(30 * _DAY)


@dataclass(frozen=True)
class Ends:
    """What ends while a machine is off. `begins`, `ends`: of its kubelet's client certificate; `authority`: the end of the CA by which it
    knows the API server. None: not known."""

    begins: datetime | None = None
    ends: datetime | None = None
    authority: datetime | None = None

    def into(self, mark: Mark) -> Mark:
        """The mark with these dates."""
        life = f"{_text(self.begins)}/{_text(self.ends)}" if self.begins and self.ends else ""
        return replace(mark, certificate=life, authority=_text(self.authority) if self.authority else "")

    @classmethod
    def of(cls, mark: Mark) -> Ends:
        """As a mark has them; what makes no sense is not known."""
        begins, _, ends = mark.certificate.partition("/")
        life = moment(begins), moment(ends)
        known = life if life[0] is not None and life[1] is not None and life[0] < life[1] else (None, None)
        return cls(*known, moment(mark.authority))


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Due:
    """Why a machine must not stay off. `at`: when it must be awake, None: no date is known, or something else decides; `soon`: from when on
    this is a warning; `worst`: it is critical without a date."""

    rule: SleepRule
    at: datetime | None
    why: str
    soon: datetime | None = None
    worst: bool = False

    def severity(self, now: datetime) -> Severity:
        if self.at is None:
            return Severity.critical if self.worst else self.rule.severity
        if now >= self.at:
            return Severity.critical
        return Severity.warning if self.soon is not None and now >= self.soon else Severity.note


@dataclass(frozen=True)
class Asleep:
    """A node whose machine daytwo turned off. `since`: of its cordon, by the API server's clock; None if someone has removed or replaced
    that cordon."""

    node: str
    mark: Mark
    since: datetime | None
    minor: int | None

    @property
    def about(self) -> str:
        since = f" since {self.since:%Y-%m-%d %H:%M}Z" if self.since is not None else ""
        return one_line(f"off{since} by run {self.mark.run}{f': {self.mark.why}' if self.mark.why else ''}")

    def dues(self, now: datetime, newest: int | None = None) -> list[Due]:
        """Of all kinds, the worst first, then by date. `newest`: the minor of the newest API server, None: not known."""
        ends = Ends.of(self.mark)
        found = [self._certificate(ends, now), *self._authority(ends), *self._long(), *self._version(newest)]
        order = list(Severity)
        return sorted(found, key=lambda one: (order.index(one.severity(now)), one.at is None, one.at or now))

    def _certificate(self, ends: Ends, now: datetime) -> Due:
        if ends.begins is None or ends.ends is None:
            at = self.since + _UNREAD if self.since is not None else None
            least = "; of one that lasts a year a tenth is left" if at else ""
            why = f"nobody has read when its kubelet's client certificate ends{least}"
            return Due(SleepRule.CERTIFICATE, at, why, self._soon(at))
        at = ends.ends - (ends.ends - ends.begins) * _LEFT
        if now >= ends.ends:
            why = f"its kubelet's client certificate has ended on {ends.ends:%Y-%m-%d}: it joins only with a new bootstrap token"
        else:
            why = f"its kubelet's client certificate ends on {ends.ends:%Y-%m-%d}; a kubelet that runs has renewed it by {at:%Y-%m-%d}"
        return Due(SleepRule.CERTIFICATE, at, why, self._soon(at))

    def _authority(self, ends: Ends) -> Iterable[Due]:
        if ends.authority is not None:
            why = f"the CA that it trusts ends on {ends.authority:%Y-%m-%d}: it must be awake to get the next one"
            yield Due(SleepRule.AUTHORITY, ends.authority - _AUTHORITY, why, ends.authority - _AUTHORITY_SOON)

    def _long(self) -> Iterable[Due]:
        if self.since is not None:
            at = self.since + _LONGEST
            yield Due(SleepRule.A_YEAR, at, "nobody knows whether a machine still starts that has not for a year", self._soon(at))

    def _version(self, newest: int | None) -> Iterable[Due]:
        if newest is None or self.minor is None:
            return
        if _forbidden(self.minor, newest):
            why = f"its kubelet 1.{self.minor} is too old for the API server 1.{newest}: it stays cordoned until its kubelet is upgraded"
            yield Due(SleepRule.VERSION, None, why, worst=True)
        elif _forbidden(self.minor, newest + 1):
            why = f"its kubelet 1.{self.minor} is too old for an API server 1.{newest + 1}: upgrade it before the control plane"
            yield Due(SleepRule.VERSION, None, why)

    def _soon(self, at: datetime | None) -> datetime | None:
        if at is None:
            return None
        return at - (min(_SOON, max(span(0), at - self.since) / 4) if self.since is not None else _SOON)


def _forbidden(kubelet: int, newest: int) -> bool:
    """Whether the version skew policy forbids it."""
    return bool(skew.problems([skew.Running("", skew.KUBELET, kubelet), skew.Running("", "kube-apiserver", newest)]))


def asleep(node: Object) -> Asleep | None:
    """None for a node that no run has turned off, or that is Ready."""
    mark = read_mark(node)
    if mark is None or mark.purpose != POWER_OFF or is_ready(node):
        return None
    fate = node_fate(node)
    return Asleep(name_of(node), mark, fate.since if fate.cordon == "ours" else None, minor_of(kubelet_version(node)))


def wake_by(node: Object) -> datetime | None:
    """When a node must be awake at the latest; None if it is not off, or no date is known."""
    found = asleep(node)
    return min((due.at for due in found.dues(EARLIEST) if due.at is not None), default=None) if found is not None else None


def due_now(nodes: Iterable[Object], now: datetime) -> dict[str, str]:
    """The nodes that must be woken now, by name, and why."""
    found = {}
    for one in filter(None, map(asleep, nodes)):
        first = next((due for due in one.dues(now) if due.at is not None and due.at <= now), None)
        if first is not None:
            found[one.node] = first.why
    return found


def _dated(due: Due, now: datetime) -> str:
    if due.at is None:
        return due.why
    by = "it should have been awake since" if now >= due.at else "wake it before"
    return f"{due.why}: {by} {due.at:%Y-%m-%d %H:%M}Z"


def findings(nodes: Iterable[Object], now: datetime, newest: int | None, hosts: Mapping[str, str]) -> list[Finding]:
    """Of each machine that is off: what is no note any more, or else the first date as a note. `hosts`: the name in the inventory of each
    Node that is known there."""
    found = []
    for one in filter(None, map(asleep, nodes)):
        dues = one.dues(now, newest)
        for due in [due for due in dues if due.severity(now) is not Severity.note] or dues[:1]:
            host = hosts.get(one.node)
            where = Place(host, "node", one.node, value=one.about)
            ways = f"{due.rule.way_out}: {command('power', power_on=host or one.node)}"
            found.append(due.rule.found(where, _dated(due, now), ways, due.severity(now)))
    return found


def waiting(one: Asleep, changes: Iterable[ChangeReport], siblings: Collection[str]) -> list[str]:
    """The runs that changed its `siblings` (hosts of its groups) while it was off, the oldest first: what its power on has to settle."""
    since = one.since
    runs: dict[str, None] = {}
    for change in changes:
        at = moment(change.at)
        counts = change.state == "confirmed" and not change.undone_by and not change.of_cluster
        if counts and change.host in siblings and since is not None and at is not None and at >= since:
            runs[change.run] = None
    return list(runs)


def siblings(host: str, groups: Mapping[str, Collection[str]]) -> set[str]:
    """The hosts that share a group with this one. `groups`: of each host; `all` is none."""
    own = set(groups.get(host, ())) - {"all"}
    return {other for other, its in groups.items() if other != host and own & set(its)}
