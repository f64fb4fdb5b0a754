"""The results as JUnit XML for CI systems (https://github.com/testmoapp/junitxml). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree

from roles.checks.judge import Result
from roles.engine.harmless import harmless

# Outcome other than pass -> its element.
_ELEMENTS = {"fail": "failure", "unknown": "error", "skip": "skipped"}


def xml(results: Sequence[Result]) -> str:
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
