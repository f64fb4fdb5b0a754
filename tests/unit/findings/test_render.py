"""Findings and results as text, and the report for CI."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from roles.engine.findings import Result, Rule, Severity, render
from roles.engine.findings.render import junit

RESULTS = [
    Result("w1", "kubelet-running", "pass", "PID 7"),
    Result("w1", "kubelet-gates", "fail", "A=<b>&\x00"),
    Result("cp1", "node-ready", "unknown", "the API is away"),
    Result("cluster", "priority-classes", "skip", "none"),
]


def test_each_result_is_a_case_of_its_node() -> None:
    suite = ElementTree.fromstring(junit(RESULTS).encode()).find("testsuite")
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
    assert ElementTree.fromstring(junit([Result(text, "x", "fail", text)]).encode()).find(".//failure") is not None


class Fruit(Rule):
    ROTTEN = ("rotten", Severity.warning, "an apple that smells", "throw it away")


def test_a_finding_is_one_line_beside_its_object_whatever_it_says() -> None:
    found = Fruit.ROTTEN.found(("Apple a",), "it smells\nHALTED")
    assert list(render.beside("shop/a", [found], "", "and more")) == [
        "\nshop/a: warning: rotten: it smells\\nHALTED; throw it away",
        "\nshop/a: and more",
    ]
    assert list(render.block(("w1", "", "/x:3"), "rotten", None, found.why, found.way_out)) == [
        "  w1  /x:3",
        "      rotten",
        "      it smells\\nHALTED",
        "      -> throw it away",
    ]


def test_a_table_stands_under_its_title_and_an_empty_one_says_so() -> None:
    assert render.section("Fruit", ["name"], [["a"]]) == "\nFruit\nname\n----\na"
    assert render.section("Fruit", ["name"], [], "nothing") == "\nFruit\nnothing"


def test_the_words_for_severities() -> None:
    assert render.tally([Severity.note, Severity.critical, Severity.note]) == "1 critical, 2 notes" and render.tally([]) == ""


def test_the_table_and_the_exit_status_of_results() -> None:
    assert [line.split()[2] for line in render.as_table(RESULTS).splitlines()[2:]] == ["pass", "FAIL", "UNKNOWN", "skip"]
    assert render.summary(RESULTS) == "checks: 1 pass, 1 fail, 1 unknown, 1 skip"
    assert (render.exit_code(RESULTS), render.exit_code(RESULTS[2:]), render.exit_code(RESULTS[:1])) == (2, 1, 0)
