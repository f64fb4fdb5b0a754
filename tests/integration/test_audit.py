"""The audit on the real lab: it finds what a stand-alone script plants, with file and line, and nothing on clean nodes; it writes nothing
there; and its page in a real browser."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roles.audit.page import page
from tests.integration import browser, operator
from tests.integration.operator import data, pyinfra, wait_for
from tests.lab import Lab
from tests.unit.audit.fleet import many
from tests.unit.status.whole import shown

PLANT = (Path(__file__).parent / "plant.sh").read_text()
# As the lab's nodes are.
WISHES = data(feature_gates="HPAScaleToZero=false", kubelet_config="maxPods=110", eviction_hard="memory.available=50Mi")
# What the audit must not touch on a node; and what of it a running node writes to by itself.
_WATCHED = "/etc /usr /opt /root /home /srv /var/lib/daytwo"
# Where a kubelet writes too, but not while nothing happens.
_QUIET = "/var/lib/kubelet /var/lib/systemd"
# What kubelet, systemd and containerd write by themselves; a node's first pod brings /run/netns.
_OTHERS = r"netns$|/var/lib/kubelet/(pods|device-plugins|plugins)/|/var/lib/systemd/(timers|random-seed|catalog|linger)"


def audit(*arguments: str) -> operator.Outcome:
    return pyinfra("audit", *arguments)


def document(outcome: operator.Outcome) -> dict[str, Any]:
    """Standard output, which must be the document and nothing else."""
    found: dict[str, Any] = json.loads(outcome.out)
    return found


def listing(lab: Lab, node: str, more: str = "") -> set[str]:
    """Every path with its times of change, mode, owner and size; of directories too."""
    told = lab.run(node, f"find {_WATCHED} {more} -xdev -printf '%p %T@ %C@ %m %u %s\\n' 2>/dev/null; ls -A /tmp /run", check=False).stdout
    return {line for line in told.splitlines() if not re.match(_OTHERS, line)}


@pytest.fixture(scope="module")
def clean(lab: Lab) -> Lab:
    """The lab as it was made, as this module's tests leave it, too: by hand it may be used otherwise, and gates be left in ConfigMaps."""
    if audit(*WISHES).code != 0:
        lab.reset()
    return lab


@pytest.mark.lab
def test_nothing_is_found_on_clean_nodes_and_nothing_written(clean: Lab) -> None:
    before = {node: listing(clean, node, _QUIET) for node in clean.nodes}
    processes = {node: operator.processes(clean, node) for node in clean.nodes}
    found = audit("--data", "format=json", *WISHES)
    told = document(found)
    assert (found.code, told["findings"], told["failures"], told["not_known"]) == (0, [], [], []), found.all
    for node in clean.nodes:
        assert len(before[node]) > 1000
        assert listing(clean, node, _QUIET) ^ before[node] == set()
        assert operator.processes(clean, node) == processes[node]
    kinds = {node["name"]: node["kind"] for node in told["nodes"]}
    assert kinds == {node: "plain" if node == "w2" else "kubeadm" for node in clean.nodes}
    assert all(node["effective"]["maxPods"] == "110" for node in told["nodes"])
    assert all(len(one["effective"]) > 100 for node in told["nodes"] for one in node["components"])
    text = audit()
    assert text.code == 0 and "Audit: nothing found on 3 nodes" in text.out, text.all


@pytest.fixture
def faults(clean: Lab) -> Iterator[dict[tuple[str, ...], str]]:
    """What the script planted, (kind, severity, file, line, name) by node; all nodes are as new afterwards."""
    try:
        found: dict[tuple[str, ...], str] = {}
        for node in clean.nodes:
            for line in clean.run(node, f"sh -s {node}", input=PLANT).stdout.splitlines():
                if line.startswith("planted|"):
                    found[tuple(line.split("|")[1:])] = node
        for node, field in (("w1", '"maxPods":99'), ("w2", '"memory.available":"60Mi"')):
            path = f"/api/v1/nodes/{node}/proxy/configz"
            wait_for(lambda: field in clean.kubectl("get", "--raw", path, check=False), f"the new kubelet of {node}")  # noqa: B023
        yield found
    finally:
        clean.reset()


@pytest.mark.lab
def test_what_was_planted_is_found_with_file_and_line(clean: Lab, faults: dict[tuple[str, ...], str], tmp_path: Path) -> None:
    before = {node: listing(clean, node) for node in clean.nodes}
    outcome = audit("--data", "format=json", "--data", "target_version=1.37", *WISHES)
    found = document(outcome)["findings"]
    assert outcome.code == 2, outcome.all
    for node in clean.nodes:
        assert listing(clean, node) ^ before[node] == set()
    missed = []
    for (kind, severity, file, line, name), node in faults.items():
        if not any(
            (one["kind"], one["severity"], one["file"]) == (kind, severity, file)
            and (one["node"] == node or file.startswith("configmap"))
            and line in ("-", str(one["line"]))
            and name in ("-", one["name"])
            for one in found
        ):
            missed.append((node, kind, severity, file, line, name))
    assert not missed, json.dumps([missed, found], indent=1)
    kinds = [kind for kind, *_ in faults]
    for kind in set(kinds):
        assert kinds.count(kind) >= 2, f"only one {kind} was planted"
    # What is not planted is not found, but for what follows from it: a gate nobody reads there, a ConfigMap without it, a twin.
    files = {file for _, _, file, _, _ in faults}
    assert {one["file"] for one in found} <= {*files, "/etc/kubernetes/manifests/kube-apiserver.yaml"}, json.dumps(found, indent=1)
    for one in found:
        assert one["rule"] and one["way_out"]

    written = tmp_path / "audit.html"
    html = audit("--data", "format=html", "--data", f"output={written}", "--data", "target_version=1.37", *WISHES)
    assert html.code == 2 and "CRITICAL" in html.out, html.all
    _is_shown(written, tmp_path, findings=10)


def _is_shown(written: Path, folder: Path, findings: int) -> browser.Told:
    """In light and dark, without a word in the console or a request to anywhere; the pictures are not blank, and not the same."""
    pictures = {}
    for dark in (False, True):
        told = browser.open_page(written, folder, "no-such-thing", dark=dark)
        assert told.console == []
        assert told.told["requests"] == [] and told.told["wide"] is False
        assert told.told["dark"] is dark
        assert told.told["all"]["findings"] >= findings
        assert told.told["answers"]["no-such-thing"]["findings"] == 0
        width, height, rows = browser.pixels(
            browser.screenshot(written, folder, f"{'dark' if dark else 'light'}.png", dark=dark, size="1000,500")
        )
        assert (width, height) == (1000, 500)
        colours = {row[at : at + 3] for row in rows[::7] for at in range(0, len(row) - 3, len(row) // width * 5)}
        assert len(colours) > 30, "the picture is all but blank"
        corner = rows[2][:3]
        pictures[dark] = sum(corner)
    assert pictures[False] > 600 > 150 > pictures[True], pictures
    return told


def test_the_page_of_a_whole_cluster_filters_its_findings(tmp_path: Path) -> None:
    report, orders = many(20)
    written = tmp_path / "status.html"
    written.write_text(shown(report, orders, "<script>document.title='x'</script>"), encoding="utf-8")
    seen = browser.open_page(written, tmp_path, "node-007", "no-such-thing", dark=True, size="600,1000")
    assert seen.console == [] and seen.told["requests"] == [] and seen.told["wide"] is False and "<script>" in seen.told["title"]
    answers = seen.told["answers"]
    assert seen.told["all"]["findings"] > answers["node-007"]["findings"] > answers["no-such-thing"]["findings"] == 0
    assert answers["node-007"]["columns"] == answers["node-007"]["orders"] == 1


@pytest.mark.lab
def test_without_an_api_files_and_processes_are_told_and_a_foreign_kind_is_only_named(clean: Lab, tmp_path: Path) -> None:
    inventory = tmp_path / "workers.py"
    inventory.write_text(operator.inventory_of_the_lab("control_plane = []"))
    clean.run("w2", "cp /usr/bin/sleep /run/k3s-agent; setsid /run/k3s-agent 600 >/dev/null 2>&1 </dev/null & echo $! >/run/k3s-agent.pid")
    try:
        found = pyinfra("audit", "--data", "format=json", inventory=str(inventory))
    finally:
        clean.run("w2", "kill $(pidof k3s-agent); rm -f /run/k3s-agent /run/k3s-agent.pid")
    told = document(found)
    nodes = {node["name"]: node for node in told["nodes"]}
    assert (found.code, told["findings"], told["failures"]) == (0, [], []), found.all
    state = pyinfra("status", "--data", "format=json", "--limit", "w1", inventory=str(inventory))
    whole = document(state)["whole"]
    assert state.code == 1 and (whole["capacity"], whole["budgets"], whole["autoscalers"]) == (None, None, None), state.all
    assert "no control-plane node" in whole["unread"][0]["why"] and whole["unread"][0]["why"] in state.err
    state = pyinfra("status", "--data", "format=json")
    whole = document(state)["whole"]
    assert (state.code, whole["unread"], whole["autoscalers"]) == (0, [], []), state.all
    assert {one["name"]: one["resources"][0]["requested"] > 0 for one in whole["capacity"]}["cp1"] and whole["budgets"] is not None
    assert nodes["w1"]["effective"] is None and nodes["w1"]["settings"] and nodes["w1"]["sources"]
    assert nodes["w2"]["kind"] == "unsupported" and "k3s" in nodes["w2"]["why"]
    assert any("no control-plane node" in note for note in told["not_known"])


@pytest.mark.lab
def test_what_cannot_be_looked_at_ends_with_1(clean: Lab, tmp_path: Path) -> None:
    found = audit("--data", "format=json", "--limit", "w1", "--ssh-user", "ops", "--ssh-password", "ops").ended(1)
    assert "needs root" in document(found)["failures"][0] and "not all nodes could be read" in found.err
    inventory = tmp_path / "ghost.py"
    inventory.write_text(operator.inventory_of_the_lab('workers.append(("ghost", {"ssh_hostname": "127.0.0.1", "ssh_port": 1}))'))
    found = pyinfra("audit", "--data", "format=json", "-y", inventory=str(inventory))
    told = document(found)
    assert (found.code, told["failures"], told["findings"]) == (1, [told["failures"][0]], []), found.all
    assert told["failures"][0].startswith("ghost: unreachable: Could not connect")
    assert [node["name"] for node in told["nodes"]] == clean.nodes
    for wish, words in (("format=xml", "format is 'xml'"), ("target_version=1.99", "not known"), ("target_versoin=1.37", "did you mean")):
        refused = audit("--data", wish)
        assert refused.code == 1 and words in refused.all and "Traceback" not in refused.all, refused.all
        assert refused.out == ""


@pytest.mark.parametrize("count", [pytest.param(300, marks=pytest.mark.slow), 500])  # what 500 do in a second, 300 do
def test_the_page_of_hundreds_of_nodes_answers_within_a_second(count: int, tmp_path: Path) -> None:
    report, orders = many(count)
    written = tmp_path / "many.html"
    written.write_text(page(report, orders), encoding="utf-8")
    for _ in range(5):  # the best try counts: in the others the browser waited for the machine
        told = browser.open_page(written, tmp_path, "node-007", "hpascaletozero", "daemon-reload").told
        if max(told["loaded"], *(answer["took"] for answer in told["answers"].values())) < 1000:
            break
    assert told["all"]["chips"] == told["all"]["orders"] == count
    assert told["all"]["columns"] < 12, "nodes that are alike are not one column"
    assert told["sticky"], "the head of the matrix or its first column went out of sight"
    assert told["answers"]["node-007"]["orders"] == 1 and told["answers"]["node-007"]["columns"] == 1
    assert 0 < told["answers"]["node-007"]["findings"] < told["all"]["findings"]
    assert told["answers"]["hpascaletozero"]["rows"] == 1
    assert told["loaded"] < 1000, told
    assert all(answer["took"] < 1000 for answer in told["answers"].values()), told
    _is_shown(written, tmp_path, findings=7)


def test_the_browser_sees_a_page_that_is_broken(tmp_path: Path) -> None:
    """A test that cannot fail proves nothing: an error in the page's own script is told, and a request is seen to be one."""
    broken = tmp_path / "broken.html"
    broken.write_text(
        '<html><body><input id="q"><img src="http://registry.invalid/x.png"><script>throw new Error("no")</script></body></html>',
        encoding="utf-8",
    )
    told = browser.open_page(broken, tmp_path)
    assert any("no" in line for line in told.console)
    assert told.told["requests"] == ["http://registry.invalid/x.png"]


def test_the_script_that_plants_is_stand_alone() -> None:
    assert "import" not in PLANT and "roles" not in PLANT and "python" not in PLANT
    assert subprocess.run(["sh", "-n"], input=PLANT, text=True, check=False).returncode == 0
    assert os.access(Path(__file__).parent / "plant.sh", os.X_OK)
