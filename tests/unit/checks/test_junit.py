"""The report for CI."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from roles.checks import Result
from roles.checks.junit import xml

RESULTS = [
    Result("w1", "kubelet-running", "pass", "PID 7"),
    Result("w1", "kubelet-gates", "fail", "A=<b>&\x00"),
    Result("cp1", "node-ready", "unknown", "the API is away"),
    Result("cluster", "priority-classes", "skip", "none"),
]


def test_each_result_is_a_case_of_its_node() -> None:
    suite = ElementTree.fromstring(xml(RESULTS).encode()).find("testsuite")
    assert suite is not None
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    cases = {
        (case.get("classname"), case.get("name")): [(child.tag, child.get("message") or child.text) for child in case] for case in suite
    }
    assert cases == {
        ("w1", "kubelet-running"): [("system-out", "PID 7")],
        ("w1", "kubelet-gates"): [("failure", "A=<b>&\\x00")],
        ("cp1", "node-ready"): [("error", "the API is away")],
        ("cluster", "priority-classes"): [("skipped", "none")],
    }


@given(st.text(alphabet=st.characters(), max_size=40))
def test_whatever_a_node_says_the_report_can_be_read(text: str) -> None:
    assert ElementTree.fromstring(xml([Result(text, "x", "fail", text)]).encode()).find(".//failure") is not None
