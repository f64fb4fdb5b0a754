"""The report: what is in danger comes first, each number has its reason, and no name of a pod can deceive."""

from __future__ import annotations

import json
from dataclasses import replace

from roles.engine.runs import document
from roles.right_size import DOCUMENTS, report
from roles.right_size.samples import Kill
from roles.right_size.workloads import Amounts
from tests.unit.picture import Page
from tests.unit.right_size.world import DAY, MI, START, container, judged, reads


def test_those_in_danger_come_first_then_those_that_waste_most() -> None:
    steady = reads(120, 5)
    found = judged(
        (container("fits", 112), steady),
        (container("wastes", 2000, 4096 * MI), steady),
        (container("wastes-more", 2000, 8192 * MI), steady),
        (container("leaks"), reads(120, 5, memory=lambda at: (20 + at) * MI)),
        (container("near", limits=Amounts(None, 104 * MI)), steady),
        (container("killed", kills=(Kill("f" * 64, START, 64 * MI, 3.0),), limits=Amounts(None, 64 * MI)), None),
    )
    assert [one.workload.name for one in found] == ["killed", "leaks", "near", "wastes-more", "wastes", "fits"]
    assert [bool(one.dangers) for one in found] == [True, True, True, False, False, False]
    assert [one.critical for one in found] == [True, True, False, False, False, False]
    assert "96% of its memory limit" in found[2].dangers[0]
    assert found[3].wasted > 0.9 and found[5].wasted_memory == 0


def test_what_evicts_and_what_starves_is_named() -> None:
    [one] = judged((container("a", 20, 50 * MI, limits=Amounts(100)), reads(60, 5, periods=100, throttled=30)))
    text = " ".join(one.dangers)
    assert "its CPU limit stopped it in 30% of the periods" in text
    assert "uses 100Mi of memory and requests 50Mi" in text and "uses 100m of CPU and requests 20m" in text
    [one] = judged((container("a", None, None), reads(60, 5)))
    assert "it requests no memory" in one.dangers[0]
    [one] = judged((container("a", None, None, critical=True), reads(60, 5)))
    assert not one.dangers, "critical pods are never evicted for memory"


def test_the_table_and_its_reasons() -> None:
    found = judged((container("web", 1000, 1024 * MI), reads(120, 5)), min_span=7 * DAY)
    text = "\n".join(report.lines(found, ["a note"]))
    assert "Deployment shop/web" in text and "keep (later 110m)" in text and "not lowered before 7 d were seen (7 d more)" in text
    assert "CPU over 2 min, memory over 2 min, 25 reads, 1 pod" in text and "a note" in text
    assert "Requested and not seen to be needed: 890m of CPU, 912Mi of memory." in text
    assert "No container runs" in "\n".join(report.lines([], []))


def test_two_pods_and_their_worst() -> None:
    one, other = container("web"), replace(container("web"), pod="web-2", id="e" * 64, restarts=2, requests=Amounts(50, 112 * MI))
    [found] = judged((one, reads(120, 5)), (other, reads(120, 5, lambda _: 300.0)))
    assert report.basis(found) == "CPU over 2 min, memory over 2 min, 50 reads, 2 pods, 2 restarts, most in web-1 and web-2"
    assert any("different requests" in note for note in report.notes_of(found))


def test_the_document_for_programs() -> None:
    found = judged((container("web", limits=Amounts(500, 200 * MI)), reads(120, 5)))
    text = document(report.as_document(found, made="now", cluster="c", notes=["n"], problems=[]))
    assert DOCUMENTS["right_size"].model_validate_json(text).problems == ()
    read = json.loads(text)
    [one] = read["containers"]
    assert read["form"] == 1 and (one["kind"], one["namespace"], one["name"], one["container"]) == ("Deployment", "shop", "web", "app")
    assert one["memory"]["now"] == {"request": 112 * MI, "limit": 200 * MI} and one["memory"]["range"] == {
        "low": 100 * MI,
        "high": 100 * MI,
    }
    assert one["cpu"]["pattern"] == "steady" and one["seen"]["reads"] == 25


def test_autoscalers_are_named() -> None:
    hpa = {
        "metadata": {"name": "h", "namespace": "shop"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"},
                 "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 50}}}]},
    }  # fmt: skip
    vpa = {
        "metadata": {"name": "v", "namespace": "shop"}, "spec": {"targetRef": {"kind": "Deployment", "name": "web"}},
        "status": {"recommendation": {"containerRecommendations": [{"containerName": "app", "target": {"cpu": "25m", "memory": "100Mi"}}]}},
    }  # fmt: skip
    [found] = judged((container("web", 55), reads(120, 5)), hpas=[hpa], vpas=[vpa])
    assert found.cpu.request == 110
    text = "\n".join(report.lines([found], []))
    assert "the HorizontalPodAutoscaler h keeps 50 % of the cpu request: with the new request, 25 % keeps as many pods" in text
    assert "the VerticalPodAutoscaler v recommends cpu 25m (- to -), memory 100Mi" in text and "v (Recreate) sets its requests" in text


def test_the_page() -> None:
    found = judged(
        (container("web", 1000, 1024 * MI, limits=Amounts(None, 2048 * MI)), reads(120, 5)),
        (container("leaks"), reads(120, 5, memory=lambda at: (20 + at) * MI)),
        (container("new"), None),
    )
    text = report.page(found, made="now", notes=["a note"], problems=["w1: unreachable"])
    read = Page(text.replace("<script>", "<style>").replace("</script>", "</style>"))
    assert not [attributes for tag, attributes in read.found if tag in ("link", "img") or "src" in attributes or "href" in attributes]
    assert "url(" not in text and "a note" in read.text and "w1: unreachable" in read.text
    rows = read.all("article", "row")
    assert [str(one["class"]).split()[1] for one in rows] == ["critical", "wasted", "fits"]
    bars = read.all("span", "bar")
    assert len([one for one in bars if one.get("role") == "img"]) == 2 * len(rows)
    assert len(read.all("u", "limit")) == 1 + 1, "the legend's, and that of the only limit"


def test_hostile_names_are_shown_and_do_nothing() -> None:
    name = "<script>alert(1)</script>\x1b[2J\u202e"
    found = judged((container(name), reads(120, 5)))
    text = report.page(found, made="now")
    assert "<script>alert" not in text and "\x1b" not in text and "\u202e" not in text and "&lt;script&gt;" in text
    assert "\\x1b[2J\\u202e" in "\n".join(report.lines(found, [])).split("Seen")[0]


def test_nothing_to_show() -> None:
    assert "No container runs" in report.page([], made="now")


def test_a_pod_without_any_request_is_told_what_one_would_make_of_it() -> None:
    [one] = judged((container("web", None, None, best_effort=True), reads(120, 5)))
    assert one.memory.decision == "raise" and any(
        "its pods are BestEffort: with a request they are Burstable" in note for note in one.notes
    )
    [other] = judged((container("web", None, None), reads(120, 5)))
    assert not any("BestEffort" in note for note in other.notes)
