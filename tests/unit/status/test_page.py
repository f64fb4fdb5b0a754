"""The page of a whole cluster: all parts are there, nothing of a hostile name acts, and what could not be read is said."""

from __future__ import annotations

import json

from roles.audit import Report
from roles.audit.model import FindingReport
from roles.audit.rules import AuditRule
from roles.engine.findings import Severity
from roles.engine.kube.amounts import listed
from roles.status import StatusReport
from roles.status.whole import capacity
from tests.unit.audit.fleet import many
from tests.unit.picture import Page
from tests.unit.status.whole import UNREAD, shown, status

HOSTILE = """</td></script><script>alert(1)</script><img src=x onerror=alert(1)>" onload="alert(1)" '\x1b[2J\u202e"""


def audited(name: str) -> Report:
    found = FindingReport(
        severity=Severity.critical, kind=AuditRule.GATE, node=name, name=name, file=name, value=name, rule=name, way_out=name
    )
    return many(4)[0].model_copy(update={"findings": (found,)})


def test_no_name_of_a_node_or_an_object_acts() -> None:
    text = shown(audited(HOSTILE), many(4)[1], HOSTILE)
    found = Page(text)
    assert len(found.all("script")) == 1 and found.all("img") == [] and text.count("<script") == 1
    handlers = [name for _, attributes in found.found for name in attributes if name.startswith("on")]
    links = [value for _, attributes in found.found for name, value in attributes.items() if name in ("src", "href")]
    assert handlers == [] and all(str(link).startswith("#") for link in links), "and it loads nothing"
    assert "\x1b" not in text and "\u202e" not in text and found.text.count("alert(1)") > 40
    (policy,) = (one for one in found.all("meta") if one.get("http-equiv"))
    assert str(policy["content"]).startswith("default-src 'none';")


def test_every_part_is_there_and_each_link_of_the_page_leads_to_one() -> None:
    report, orders = many(4)
    found = Page(shown(report, orders))
    parts = [str(one["id"]) for one in found.all("section")]
    assert parts == ["nodes", "findings", "matrix", "eviction", "capacity", "certificates", "budgets", "autoscalers", "runs", "sources"]
    assert {str(one["href"]).removeprefix("#") for one in found.all("a")} <= {*parts}
    widths = [str(one.get("style")) for one in found.all("i") if "width" in str(one.get("style"))]
    assert "width:100%" in widths or "width:100.0%" in widths, "what is over the allocatable does not leave its bar"
    assert "exit status 0" in found.text and "2500m requested, 500m used, of 2000m" in found.text
    assert [one for one in found.all("article") if "hidden" in one] == [], "without a script all findings are shown"


def test_a_part_that_could_not_be_read_is_named_and_the_status_is_not_0() -> None:
    report, orders = many(4)
    made = status(report, budgets=None, capacity=None, autoscalers=None, unread=UNREAD)
    assert made.unread == ("disruption: it answered 500",)
    text = Page(shown(report, orders, budgets=None, capacity=None, autoscalers=None, unread=UNREAD)).text
    assert "exit status 1: not everything could be read" in text and "disruption: it answered 500" in text
    assert text.count("Not read: see the top of the page.") == 3


def test_the_document_is_the_model() -> None:
    made = status(many(4)[0], HOSTILE)
    assert StatusReport.model_validate(json.loads(made.model_dump_json())) == made


def test_what_the_pods_of_a_node_request_and_what_it_uses() -> None:
    node = {"metadata": {"name": "w1"}, "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "110"}}}
    empty = {"metadata": {"name": "w2"}, "status": {}}
    container = {"name": "c", "resources": {"requests": {"cpu": "300m", "memory": "64Mi"}}}
    pods = [
        {"metadata": {"namespace": "shop", "name": name}, "spec": {"nodeName": "w1", "containers": [container]}, "status": {"phase": phase}}
        for name, phase in (("a", "Running"), ("b", "Running"), ("over", "Succeeded"))
    ]
    first, second = capacity([node, empty], pods, {"w1": listed({"cpu": "250m"})})
    assert [(one.allocatable, one.requested, one.used) for one in first.resources] == [
        (2000, 600, 250), (1 << 30, 128 << 20, None), (110, 2, None)
    ]  # fmt: skip
    assert [(one.allocatable, one.requested, one.used) for one in second.resources] == [(0, 0, None)] * 3
