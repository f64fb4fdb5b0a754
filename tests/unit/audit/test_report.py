"""What the audit says, to people, to programs and in a browser."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from roles.audit import Collected, Report, as_text, report, verdict
from roles.audit.matrix import group, matrix
from roles.audit.model import FindingReport, in_order
from roles.audit.node_view import NodeView
from roles.audit.page import page
from roles.audit.rules import AuditRule
from roles.audit.text import together
from roles.engine.findings import Severity
from roles.eviction import NodeOrder
from roles.feature_gates import load
from tests.unit.audit.fleet import CONFIG, EXTRA, MADE, config, control_plane, make, many
from tests.unit.picture import Page

SCHEMA = Path(__file__).resolve().parents[3] / "docs/reference/audit.schema.json"


@cache
def fleet() -> tuple[Report, list[NodeOrder]]:
    return many(100)


def made(*views: NodeView, failures: tuple[str, ...] = ()) -> Report:
    return report(Collected(list(views), failures=list(failures)), load(), made=MADE)


def finding(severity: Severity = Severity.note, node: str = "w1", kind: AuditRule = AuditRule.GATE, **more: object) -> FindingReport:
    return FindingReport(severity=severity, kind=kind, node=node, rule="r", way_out="w", **more)  # type: ignore[arg-type]


# ---- for programs


def test_the_document_is_what_the_schema_describes() -> None:
    document, described = json.loads(fleet()[0].model_dump_json()), json.loads(SCHEMA.read_text())
    assert set(document) == set(described["properties"])
    for name, key in (("FindingReport", "findings"), ("NodeReport", "nodes")):
        assert set(document[key][0]) == set(described["$defs"][name]["properties"])
    assert Report.model_validate(document) == fleet()[0]
    kinds = described["$defs"]["AuditRule"]["enum"]
    assert {*kinds} == {one.value for one in AuditRule if one.heading}, "each kind has a title"


@pytest.mark.parametrize(
    ("views", "failures", "code"), [(0, (), 0), (1, (), 2), (0, ("w9: unreachable",), 1), (1, ("w9: unreachable",), 1)]
)
def test_exit_codes(views: int, failures: tuple[str, ...], code: int) -> None:
    lines = ("featureGates:", "  NoSuchGate: true") if views else ()
    assert made(make(files={CONFIG: config(*lines)}), failures=failures).code == code


def test_the_worst_first_and_each_once() -> None:
    listed = [
        finding(node="w2"), finding(Severity.critical, "w1"), finding(node="w1"), finding(node="w2"),
        finding(Severity.critical, "w1", AuditRule.UNREADABLE), finding(Severity.warning, "w1", line=7, file="/x"),
    ]  # fmt: skip
    found = [(one.severity.value, one.kind, one.node) for one in in_order(listed, ["w1", "w2"])]
    assert found == [
        ("critical", "unreadable", "w1"), ("critical", "gate", "w1"), ("warning", "gate", "w1"), ("note", "gate", "w1"), ("note", "gate", "w2"),
    ]  # fmt: skip


# ---- the matrix


def test_identical_nodes_share_a_column() -> None:
    found = matrix(fleet()[0])
    assert sum(len(one.nodes) for one in found.groups) == 100 and len(found.groups) < 10
    assert len({one.first.name for one in found.groups}) == len(found.groups)


def test_a_row_is_what_a_source_sets_or_what_differs() -> None:
    data = config("featureGates:", "  NodeLogQuery: true")
    views = [make("w1", files={CONFIG: config()}), make("w2", files={CONFIG: data}, gates={"NodeLogQuery": True, "WatchList": False})]
    found = matrix(made(*views))
    rows = {row.name: row for row in found.rows if row.section == "kubelet gates"}
    assert set(rows) == {"NodeLogQuery", "WatchList"}
    cell = rows["NodeLogQuery"].cells[1]
    assert cell is not None and (cell.value, cell.source, cell.place) == ("true", "file", f"{CONFIG}:{len(config().splitlines()) + 2}")
    names = {name for name, _ in found.alike["kubelet gates"]}
    assert "HPAScaleToZero" in names and not names & set(rows)
    assert "maxPods" in {name for name, _ in found.alike["kubelet settings"]}, "set to its default"


def test_what_the_process_does_not_have_yet_is_marked() -> None:
    cells = [
        row.cells[0] for row in matrix(made(make(files={CONFIG: config()}, configuration={"maxPods": 99}))).rows if row.name == "maxPods"
    ]
    assert [(cell.value, cell.pending) for cell in cells if cell] == [("99", "110")]


def test_zeros_that_kubeadm_writes_are_not_set() -> None:
    data = config("imageMinimumGCAge: 0s")
    assert "imageMinimumGCAge" not in {
        row.name for row in matrix(made(make(files={CONFIG: data}, configuration={"imageMinimumGCAge": "2m0s"}))).rows
    }


def test_a_difference_makes_two_columns() -> None:
    nodes = made(make("w1"), make("w2"), make("w3", configuration={"maxPods": 5}), make("w4", configuration={"providerID": "x://4"})).nodes
    assert [[node.name for node in one.nodes] for one in group(nodes)] == [["w1", "w2", "w4"], ["w3"]]


# ---- for people


def test_the_text() -> None:
    text = as_text(fleet()[0])
    assert text.startswith(f"Audit: {verdict(fleet()[0])}")
    assert text.index("CRITICAL") < text.index("WARNING") < text.index("NOTE") < text.index("Nodes")
    assert f"{CONFIG}:23" in text and "node-007, node-014, node-021" in text
    assert "Audit: nothing found on 1 node\n" in as_text(made(make()))


def test_the_same_finding_of_several_nodes_is_reported_once() -> None:
    assert [(len(nodes), one.node) for one, nodes in together([finding(node="w1"), finding(node="w2"), finding(node="w2", line=3)])] == [
        (2, None),
        (1, None),
    ]


def test_control_characters_do_not_reach_the_terminal() -> None:
    data = config("featureGates:", '  "A\\e[31mB": true')
    assert "\x1b" not in as_text(made(make(files={CONFIG: data})))


def test_secrets_are_not_shown() -> None:
    argv = ("kube-apiserver", "--oidc-client-secret=hunter2", "--v=2")
    parts = control_plane()
    parts["components"] = {**parts["components"], "kube-apiserver": argv}
    flags = b'KUBELET_EXTRA_ARGS="--manifest-url-header=Authorization:hunter2"\n'
    found = made(make("cp1", files={CONFIG: config(), EXTRA: flags}, **parts))
    assert len([one for one in found.findings if one.kind == "stale"]) >= 2
    assert "hunter2" not in found.model_dump_json() + as_text(found) + page(found)


def test_the_page_loads_nothing_else_and_is_complete() -> None:
    text = page(*fleet())
    parsed = Page(text)
    assert not [name for name, attributes in parsed.found for key in ("src", "href") if (attributes.get(key) or "#")[0] != "#"]
    assert "url(" not in text and "@import" not in text and "http://" not in text and "https://" not in text
    assert len(parsed.all("article")) == len(together(fleet()[0].findings))
    assert len([one for one in parsed.all("button") if one.get("data-node")]) == 100
    ids = [attributes["id"] for _, attributes in parsed.found if attributes.get("id")]
    assert len(ids) == len(set(ids))


def test_nothing_of_a_node_becomes_markup() -> None:
    data = config("featureGates:", '  "<script>alert(1)</script>": true', 'clusterDomain2: "</style><b>"')
    text = page(made(make("<i>w1", files={CONFIG: data})))
    assert "<script>alert" not in text and "<i>w1" not in text and "</style><b>" not in text
    assert "&lt;script&gt;alert" in text


def test_a_clean_page_says_so() -> None:
    text = page(made(make("cp1", groups=("control_plane",), **control_plane())))
    assert "Nothing found." in text and 'class="finding' not in text


def test_the_page_stays_small() -> None:
    text = page(*fleet())
    assert len(text) < 100 * 4000, "four kilobytes a node"
