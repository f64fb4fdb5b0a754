"""Findings and results of checks, for people and for programs. A terminal gets a block for each finding of a report, a line beside an
object, or a table of results; a program gets JSON (the documents of each deploy) and JUnit XML
(https://github.com/testmoapp/junitxml). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from xml.etree import ElementTree

from roles.engine import folding, table
from roles.engine.findings.model import SEVERITIES, CheckOutcome, Finding, Result, Severity
from roles.engine.harmless import harmless, one_line
from roles.engine.screen import wrapped

# Outcome other than pass -> its element of JUnit.
_ELEMENTS = {"fail": "failure", "unknown": "error", "skip": "skipped"}
# Exit statuses other than 0.
_NOT_CHECKED, _FAILED = 1, 2


def counted(number: int, severity: Severity) -> str:
    """`1 critical`, `2 warnings`."""
    return f"{number} {severity}{'s' if number != 1 and severity is not Severity.critical else ''}"


def tally(found: Sequence[Severity]) -> str:
    """`1 critical, 2 warnings`; "" for none."""
    return ", ".join(counted(found.count(one), one) for one in SEVERITIES if one in found)


def block(where: Iterable[str], title: str, value: str | None, why: str, way_out: str) -> Iterator[str]:
    """A finding of a report, below its severity."""
    yield f"  {'  '.join(one_line(part) for part in where if part)}"
    lines = (f"{title}: {value}" if value else title, why, f"-> {way_out}")
    yield from (wrapped(f"      {line}") for line in lines)


def beside(name: str, findings: Iterable[Finding], *more: str) -> Iterator[str]:
    """The findings of one object, and what else is to say of it, each a line with its name."""
    for text in filter(None, (*(f"{one.severity}: {one}" for one in findings), *more)):
        yield "\n" + wrapped(f"{name}: {text}")


def section(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], none: str = "none") -> str:
    """A table under its title; `none`: what is there without any row."""
    return f"\n{wrapped(title)}\n{table.render(headers, rows) if rows else none}"


def not_known(texts: Iterable[str]) -> Iterator[str]:
    yield from ("\n" + wrapped(f"not known: {text}") for text in texts)


# ---- results of checks


def as_table(results: Sequence[Result]) -> str:
    """Of many hosts, what passes in one row for each check, after what does not; the summary counts what was skipped."""
    rows = [[one.node, one.check, one.outcome, one.why] for one in results if one.applies]
    if folding.folds():
        passed = [row for row in rows if row[2] == "pass"]
        rows = [*table.folded([row for row in rows if row[2] not in ("pass", "skip")]), *table.folded(passed, vary=(3,))]
    shown = [[node, check, outcome.upper() if outcome in ("fail", "unknown") else outcome, why] for node, check, outcome, why in rows]
    return table.render(["node", "check", "result", "why"], shown)


def summary(results: Iterable[Result]) -> str:
    """`checks: 40 pass, 1 fail, 0 unknown, 5 skip`."""
    counts = Counter(result.outcome for result in results)
    outcomes: tuple[CheckOutcome, ...] = ("pass", "fail", "unknown", "skip")
    return "checks: " + ", ".join(f"{counts[outcome]} {outcome}" for outcome in outcomes)


def exit_code(results: Iterable[Result]) -> int:
    """0: nothing failed; 2: a check failed; 1: no check failed, and something could not be checked."""
    outcomes = {result.outcome for result in results}
    return _FAILED if "fail" in outcomes else _NOT_CHECKED if "unknown" in outcomes else 0


def junit(results: Sequence[Result]) -> str:
    """One test case for each result: its class is the node, its name the check. An unknown outcome is an error."""
    counts = Counter(result.outcome for result in results)
    numbers = {"tests": len(results), "failures": counts["fail"], "errors": counts["unknown"], "skipped": counts["skip"]}
    suite = ElementTree.Element("testsuite", {"name": "daytwo checks", **{key: str(number) for key, number in numbers.items()}})
    for result in results:
        case = ElementTree.SubElement(suite, "testcase", {"classname": _plain(result.node), "name": _plain(result.check), "time": "0"})
        if result.outcome in _ELEMENTS:
            ElementTree.SubElement(case, _ELEMENTS[result.outcome], {"message": _plain(result.why)})
        else:
            ElementTree.SubElement(case, "system-out").text = _plain(result.why)
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _plain(text: str) -> str:
    """Escapes control characters and surrogates, which XML 1.0 forbids, and characters that would deceive a reader."""
    return harmless(text).replace("\t", "\\t")
