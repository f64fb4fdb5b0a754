"""What the documents for people name is there: make's targets, deploys, tests, and the jobs of CI."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from roles.engine.inputs import registry

ROOT = Path(__file__).resolve().parents[3]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
TARGETS = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_named_is_there(path: Path) -> None:
    text = path.read_text()
    assert set(re.findall(r"(?m)(?:^ +|`)make ([a-z-]+)\b", text)) <= TARGETS
    for name in re.findall(r"deploys/([a-z_]+)\.py", text):
        assert (ROOT / f"deploys/{name}.py").exists(), f"deploys/{name}.py"
    for name in re.findall(r"\b(tests/[\w/]+\.(?:py|md))", text):
        assert (ROOT / name).exists(), name
    for name, inside in re.findall(r"`(roles/[\w/.]+|templates/[\w.]+)`(?::\s+`(\w+)`)?", text):
        assert (ROOT / name).exists(), name
        assert not inside or re.search(rf"\b(def|class) {inside}\b", (ROOT / name).read_text()), f"{name}: {inside}"


def headings(path: Path) -> set[str]:
    """The anchors that GitHub makes of a document's headings."""
    found = re.findall(r"(?m)^#+ (.*)$", re.sub(r"(?ms)^ *```.*?^ *```", "", path.read_text()))
    return {re.sub(r"[^\w -]", "", re.sub(r"\]\([^)]*\)", "", heading)).strip().lower().replace(" ", "-") for heading in found}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_link_leads_to_a_file_and_a_heading(path: Path) -> None:
    for name, anchor in re.findall(r"\]\((?!https?:)([^)\s#]*)#?([^)\s]*)\)", path.read_text()):
        target = path.parent / name if name else path
        assert target.exists(), name
        assert not anchor or anchor in headings(target), f"{name}#{anchor}"


@pytest.mark.parametrize("path", [*PAGES, *ROOT.glob("deploys/*.py")], ids=lambda path: str(path.relative_to(ROOT)))
def test_a_command_gives_a_deploy_only_keys_that_it_reads(path: Path) -> None:
    readers = registry.written_readers()
    for deploy, words in re.findall(r"pyinfra \S+ deploys/(\w+)\.py((?:[^\n`]|(?<=\\)\n)*)", path.read_text()):
        for key in re.findall(r"--data '?(\w+)=", words):
            assert {deploy, registry.EVERY_DEPLOY} & readers.get(key, {registry.EVERY_DEPLOY}), f"deploys/{deploy}.py --data {key}"


def test_every_deploy_is_in_the_table_of_deploys() -> None:
    told = set(re.findall(r"(?m)^\| `(\w+)\.py` \|", (ROOT / "docs/deploys.md").read_text()))
    assert {path.stem for path in (ROOT / "deploys").glob("*.py")} == told


def test_ci_runs_what_a_change_is_judged_by() -> None:
    assert {"lint", "test-unit", "test"} <= targets_of("ci") <= TARGETS
    assert targets_of("weekly") == {"test-full"} <= TARGETS


def targets_of(workflow: str) -> set[str]:
    jobs = YAML(typ="safe").load((ROOT / f".github/workflows/{workflow}.yml").read_text())["jobs"]
    return set(re.findall(r"make ([a-z-]+)'", str(jobs)))


def test_the_commands_for_autoscaling_and_for_fewer_machines_are_those_of_runbooks() -> None:
    """So a test runs each of them on a real cluster, with real load: test_from_no_metrics_api_to_four_pods_and_back."""
    section = (ROOT / "README.md").read_text().partition("**Autoscaling on your own machines**")[2].partition("\nNext: ")[0]
    names = ("metrics-api", "scale-on-cpu", "turn-off-for-the-night", "wake-for-a-deployment")
    books = "".join((ROOT / f"docs/runbooks/{name}.md").read_text() for name in names)
    commands = [line.partition("#")[0].strip() for line in section.splitlines() if line.startswith("    pyinfra ")]
    assert len(commands) == 9
    for command in commands:
        assert f"$ {command.replace('inventories/mine.py', 'inventories/prod.py')}\n" in books, command


def test_no_row_of_the_comparison_is_empty() -> None:
    table = (ROOT / "README.md").read_text().partition("| | daytwo |")[2].partition("\n\n")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines()[2:]]
    assert rows and all(len(row) == 6 and all(cell.strip() for cell in row) for row in rows)
