"""The tables of rules in docs/ are those of the rules, and each rule says what to do."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from roles.audit.rules import AuditRule
from roles.engine.findings import Rule, Severity, worst_first
from roles.engine.findings.__main__ import DOCS, PAGES, page
from roles.engine.node_lint import NodeRule


@pytest.mark.parametrize("name", PAGES)
def test_the_table_of_a_page_is_that_of_the_rules(name: str) -> None:
    text = page(name)
    assert (DOCS / name).read_text(encoding="utf-8") == text, "run `python -m roles.engine.findings`"
    module, table, head = PAGES[name]
    rows = text.partition(f"| {head} |")[2].partition("\n\n")[0]
    assert re.findall(r"`([\w-]+)`(?:,| \|)", re.sub(r" \| .*", " |", rows)) == list(getattr(import_module(module), table))


def test_each_rule_for_nodes_names_the_kind_of_the_audit_that_reports_it() -> None:
    assert {rule.heading for rule in NodeRule} <= {kind.value for kind in AuditRule}


class Fruit(Rule):
    BRUISED = ("bruised", Severity.warning, "an apple with spots", "cut them out")
    ROTTEN = ("rotten", Severity.critical, "an apple that smells", "throw it away")


def test_a_finding_has_what_its_rule_has_unless_the_judge_knows_better() -> None:
    soft, bad = (
        Fruit.BRUISED.found(("Apple a",), "3 spots"),
        Fruit.ROTTEN.found(("Apple b", "Box c"), "it smells", "burn it", Severity.note),
    )
    assert str(soft) == "bruised: 3 spots; cut them out" and soft.severity is Severity.warning
    assert (bad.rule, bad.severity, bad.objects, bad.why, bad.way_out) == (
        "rotten", Severity.note, ("Apple b", "Box c"), "it smells", "burn it",
    )  # fmt: skip
    assert worst_first([bad, soft]) == [soft, bad] and Fruit("rotten") is bad.rule
