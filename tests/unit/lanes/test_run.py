"""Whole runs in lanes: pytest, xdist and its workers are the real ones, only the lab is a stand-in that notes what is asked of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.lanes.controller import BEHIND
from tests.lanes.worker import folder_name, keeps

ROOT = Path(__file__).resolve().parents[3]
pytest_plugins = ["pytester"]
CONFTEST = '''
import json, os
from pathlib import Path
import pytest
import tests.lab

pytest_plugins = ["tests.lanes.plugin"]
ROOT = Path(__file__).parent


class Stand:
    """The lab's interface; its state is a file a lane, and so outlives a worker."""

    def __init__(self, name):
        self.name, self.file = name, ROOT / f"lab-{name}"

    @property
    def shape_name(self):
        return self.file.read_text() or None if self.file.exists() else None

    @property
    def exists(self):
        return self.file.exists()

    def note(self, text):
        with (ROOT / "asked").open("a") as file:
            file.write(f"{self.name} {text}\\n")

    def become(self, shape):
        self.note(f"become {shape}")
        if (ROOT / f"no-{self.name}-{shape}").exists():
            raise RuntimeError("no memory left")
        self.file.write_text(shape)

    def pristine(self):
        self.note("pristine")
        if (ROOT / "no-reset").exists():
            raise RuntimeError("no pristine disk")

    def well(self):
        wrong = ROOT / f"unwell-{self.name}"
        return wrong.read_text() if wrong.exists() else ""

    def fingerprint(self):
        left = ROOT / f"left-{self.name}"
        return {"node w1": "a=b", **({"namespace shop": "there"} if left.exists() else {})}

    def evidence(self, folder):
        (folder / "console-w1").write_text("what the node said")

    def down(self):
        self.note("down")
        self.file.unlink(missing_ok=True)


tests.lab.Lab = Stand


@pytest.fixture(scope="session")
def lab(request):
    return request.config.pluginmanager.get_plugin("lanes-worker").lab


@pytest.fixture(scope="session", autouse=True)
def session():
    with (ROOT / "sessions").open("a") as file:
        file.write(os.environ["DAYTWO_LANE"])


@pytest.fixture(autouse=True)
def noted(request, session):
    with (ROOT / "ran").open("a") as file:
        words = [os.environ["DAYTWO_LANE"], os.environ.get("LAB", "-"), os.environ.get("DAYTWO_LAB", "-"), str(os.nice(0))]
        file.write(json.dumps([*words, request.node.nodeid]) + "\\n")
'''
INI = """
[pytest]
addopts = -ra --strict-markers -p xdist.plugin -p no:cacheprovider
markers =
    lab: x
    wide: x
    older: x
"""


class Run:
    """What a run said, what it asked of the labs, and which tests it ran in which lane."""

    def __init__(self, pytester: pytest.Pytester, *arguments: str) -> None:
        self.root = pytester.path
        self.result = pytester.runpytest_subprocess(*arguments)
        self.code = self.result.ret
        self.out = self.result.stdout.str()
        self.asked = (self.root / "asked").read_text().splitlines() if (self.root / "asked").exists() else []
        ran = (self.root / "ran").read_text().splitlines() if (self.root / "ran").exists() else []
        self.environments = {tuple(json.loads(line)[:4]) for line in ran}
        self.ran = [(json.loads(line)[0], json.loads(line)[4]) for line in ran]

    def tests(self, lane: str) -> list[str]:
        return [test for of, test in self.ran if of == lane]

    def says(self, pattern: str) -> bool:
        return re.search(pattern, self.out, re.MULTILINE) is not None


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # Those of the environment, all but xdist, only take time in each of the processes.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name in ("DAYTWO_LAB", "LAB", "DAYTWO_LANE", "DAYTWO_KEEP_LABS", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    pytester.makeconftest(CONFTEST)
    pytester.makefile(".ini", pytest=INI)
    return pytester


def module(project: pytest.Pytester, name: str, text: str, marker: str = "") -> None:
    mark = f"pytestmark = pytest.mark.{marker}\n" if marker else ""
    path = project.path / f"tests/{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"import os, pytest\n{mark}\n{text}\n")


def durations(project: pytest.Pytester, tests: dict[str, float]) -> None:
    (project.path / "tests/durations.json").write_text(json.dumps(tests))


def test_each_test_in_a_lane_that_fits(project: pytest.Pytester) -> None:
    def over(name: str) -> str:
        return f"open({str(project.path / name)!r}, 'w').close()"

    module(project, "test_big", "def test_one(lab):\n    assert (lab.name, lab.shape_name) == ('w', 'wide')", "wide")
    module(
        project,
        "test_both",
        f"@pytest.mark.lab\ndef test_small(lab):\n    assert lab.shape_name == 'small'\n    {over('both')}\n"
        "@pytest.mark.wide\n@pytest.mark.lab\ndef test_wide(lab):\n    assert lab.shape_name == 'wide'",
    )
    # Lane w would take small ones, too, if lane a were late.
    done = [str(project.path / name) for name in ("both", "few")]
    late = f"    end = time.monotonic() + 120\n    while not all(map(os.path.exists, {done})) and time.monotonic() < end: time.sleep(0.05)"
    module(
        project, "test_old", f"import time\ndef test_one(lab):\n    assert lab.shape_name == 'older'\n{late}\n    {over('left-w')}", "older"
    )
    few = f"@pytest.mark.parametrize('n', [3, 1, 2])\ndef test_n(lab, n): pass\ndef test_last(lab):\n    time.sleep(1.1)\n    {over('few')}"
    module(project, "test_few", f"import time\n{few}", "lab")
    module(project, "unit/test_pure", "def test_one(): pass\ndef test_two(): pytest.skip('not here')")
    # Not read by a lane with a lab: it would fail there.
    module(project, "unit/test_alone", "assert os.environ['DAYTWO_LANE'] == 'u'\ndef test_one(): pass")
    # Two in one folder before those of another one: what the folders share with each other is torn down between them.
    for name in ("also/test_one", "also/test_other"):
        module(project, name, "def test_one(): pass")
    durations(project, {"tests/test_gone.py::test_one": 7})
    run = Run(project, "--lanes=w:wide+older+small,a:small,u:none", "--durations-record", "tests")
    assert run.code == 0, run.out
    here = os.nice(0)
    assert run.environments == {("w", "w", "1", f"{here}"), ("a", "a", "1", f"{here}"), ("u", "-", "-", f"{min(19, here + BEHIND)}")}
    assert run.tests("w") == ["tests/test_big.py::test_one", "tests/test_both.py::test_wide", "tests/test_old.py::test_one"]
    assert set(run.tests("a")) == {
        "tests/test_both.py::test_small",
        *(f"tests/test_few.py::test_n[{n}]" for n in (3, 1, 2)),
        "tests/test_few.py::test_last",
    }
    few = [test for test in run.tests("a") if "few" in test]
    assert [test.partition("::")[2] for test in few] == ["test_n[3]", "test_n[1]", "test_n[2]", "test_last"], "their order is kept"
    assert len(run.tests("u")) == 5
    assert sorted((project.path / "sessions").read_text()) == ["a", "u", "w"], "a fixture of the session lives as long as the lane"
    assert not run.says(r"^[.s]+$|\[ *\d+%\]"), "no letter a test"
    assert [line for line in run.asked if line.startswith("w")] == ["w become wide", "w become older", "w down"]
    assert [line for line in run.asked if line.startswith("a")] == ["a become small", "a down"]
    assert run.says(r"^\d\d:\d\d:\d\d  a   tests/test_few.py \(small\): 4 passed, \d+ s, 0 s of them for the lab \[lane has \d to go\]$")
    left = r"tests/test_old.py: namespace shop is new$"
    assert run.says(rf"^\d\d:\d\d:\d\d  w   LEFT CHANGED by {left}") and run.says(rf"^{left}"), "the last unit too, and in the end"
    assert run.says(r"^-+ modules that left their lab changed -+$")
    assert run.says(r"^ +\d+\.\d s  u +tests/unit/ \(none\): 2 passed, 1 skipped$")
    assert run.says(r"^SKIPPED .* not here$") and run.says(r"= 12 passed, 1 skipped in ")
    assert run.says(r"^lane +start +tests +labs +idle +CPU itself +CPU children$")
    assert all(run.says(rf"^{lane}( +\d+){{6}}$") for lane in "wau"), "each has sent what it took"
    recorded = json.loads((project.path / "tests/durations.json").read_text())
    assert set(recorded) == {*run.tests("w"), *run.tests("a")} and recorded["tests/test_few.py::test_last"] >= 1, (
        "in a lab, or a second or more"
    )


def test_after_a_failure_the_lab_is_reset_and_what_is_left_is_kept(project: pytest.Pytester) -> None:
    bad = (
        "def test_good(lab): pass\n@pytest.mark.parametrize('n', ['a/b c'])\ndef test_bad(lab, n):\n    print('seen before'); assert 1 == 2"
    )
    late = "@pytest.fixture\ndef late(lab):\n    yield\n    (lab.file.parent / 'no-reset').touch()\n    raise OSError('no way back')\n"
    unwell = "def test_good(lab): (lab.file.parent / 'unwell-a').write_text('w1 is not Ready')"
    good = "def test_good(lab): (lab.file.parent / 'unwell-a').unlink(missing_ok=True)"
    texts = {"first": bad, "second": unwell, "third": good, "fourth": f"{late}def test_end(late): pass", "fifth": good}
    for name, text in texts.items():
        module(project, f"test_{name}", text, "lab")
    order = {"first::test_good": 9, "second::test_good": 8, "third::test_good": 7, "fourth::test_end": 6, "fifth::test_good": 5}
    durations(project, {f"tests/test_{name.replace('::', '.py::')}": seconds for name, seconds in order.items()})
    (project.path / ".evidence/a/of-another-run").mkdir(parents=True)
    run = Run(project, "--lanes=a:small", "tests")
    assert run.code == 1
    assert run.asked == ["a become small", "a pristine", "a pristine", "a pristine", "a down", "a become small", "a down"]
    assert run.says(r"  a   lab reset after tests/test_first.py: tests/test_first.py::test_bad\[a/b c\] failed$")
    assert run.says(r"  a   lab reset after tests/test_second.py: w1 is not Ready$")
    again = "tests/test_fourth.py::test_end failed; it could not be reset: no pristine disk"
    assert run.says(rf"lab made again after tests/test_fourth.py: {again}$")
    assert run.says(r"  a   FAILED tests/test_first.py::test_bad\[a/b c\]: assert 1 == 2$")
    assert run.says(r"  a   FAILED at teardown tests/test_fourth.py::test_end: OSError: no way back$")
    kept = project.path / ".evidence/a/1-test_first-test_bad_a_b_c_"
    assert (kept / "console-w1").read_text() == "what the node said"
    assert "assert 1 == 2" in (kept / "report.txt").read_text() and "seen before" in (kept / "report.txt").read_text()
    assert {path.name for path in kept.parent.iterdir()} == {kept.name, "2-test_fourth-test_end"}
    assert run.says(r"^\.evidence/a/1-test_first-test_bad_a_b_c_$")
    rows = re.findall(r"^ +\d+\.\d s  a +tests/test_(\w+).py \(small\): ", run.out, re.MULTILINE)
    assert set(rows[:2]) == {"first", "fourth"} and len(rows) == 5, "those that failed come first"
    assert run.says(r"^FAILED tests/test_first.py::test_bad\[a/b c\] - assert 1 == 2$")
    assert run.says(r"^ERROR .*tests/test_fourth.py::test_end"), run.out


def test_a_lane_without_a_lab_leaves_the_rest_to_others(project: pytest.Pytester) -> None:
    for number in range(4):
        module(project, f"test_{number}", "def test_one(lab): pass\ndef test_two(lab): pass", "lab")
    (project.path / "no-a-small").touch()
    run = Run(project, "--lanes=a:small,b:small", "tests")
    assert run.code == 1 and run.says(r"= 6 passed, 2 errors in "), run.out
    assert run.says(r"^the lab \(small\) cannot be made: no memory left$")
    assert len(run.tests("b")) == 6 and run.tests("a") == []


def test_a_lane_that_waits_for_another_helps_when_that_one_has_ended(project: pytest.Pytester) -> None:
    """Beside one that finds no tests, for which no lab is created. Of the lanes that collect, it comes last here; pytest alone would say
    that nothing was collected."""
    last = "not all(os.path.exists(f\"{lanes['folder']}/{one}.json\") for one in 'acu')"
    late = f"    while lanes['lane'] == 'd' and {last}: time.sleep(0.02)"
    module(project, "conftest", f"import time\ndef pytest_collection_modifyitems(config):\n    lanes = config.workerinput['lanes']\n{late}")
    done = str(project.path / "done")
    wait = f"    end = time.monotonic() + 60\n    while not os.path.exists({done!r}) and time.monotonic() < end: time.sleep(0.05)"
    module(project, "test_first", f"import time\ndef test_one(lab):\n{wait}", "lab")
    module(project, "test_second", f"def test_one(lab): open({done!r}, 'w').close()", "lab")
    module(project, "unit/test_pure", "def test_one(): pass")
    run = Run(project, "--lanes=c:small@u,a:small,u:none,d:older", "tests")
    assert run.code == 0 and run.says("= 3 passed in "), run.out
    assert (run.tests("a"), run.tests("c")) == (["tests/test_first.py::test_one"], ["tests/test_second.py::test_one"])
    assert sorted(run.asked) == ["a become small", "a down", "c become small", "c down"]


def test_a_worker_that_crashes_names_its_test_and_the_rest_is_done(project: pytest.Pytester) -> None:
    module(project, "test_first", "def test_one(lab): pass\ndef test_end(lab): os._exit(3)\ndef test_more(lab): pass", "lab")
    module(project, "test_second", "def test_one(lab): pass", "lab")
    module(project, "unit/test_pure", "def test_one(): pass")
    durations(project, {"tests/test_second.py::test_one": 1})
    run = Run(project, "--lanes=a:small,u:none", "tests")
    assert run.code == 1
    assert run.says(r"FAILED tests/test_first.py::test_end: worker 'a' crashed while running 'tests/test_first.py::test_end'")
    assert [test.partition("::")[2] for test in run.tests("a")] == ["test_one", "test_end", "test_more", "test_one"]
    assert run.says(r"= 1 failed, 4 passed"), run.out
    assert run.asked == ["a become small", "a become small", "a down"], "the new worker does not trust the lab that it finds"


def test_a_lane_that_is_not_started_again_leaves_no_lab(project: pytest.Pytester) -> None:
    module(project, "test_first", "def test_end(lab): os._exit(3)\ndef test_more(lab): pass", "lab")
    run = Run(project, "--lanes=a:small", "--max-worker-restart=0", "tests")
    assert run.code == 1 and run.says(r"a +tests/test_first.py \(small\): 1 failed, 1 not run$"), run.out
    assert run.asked == ["a become small", "a down"]


@pytest.mark.parametrize("whole_group", [True, False], ids=["ctrl-c", "one process"])
def test_an_interrupted_run_takes_its_labs_down(project: pytest.Pytester, whole_group: bool) -> None:
    """Ctrl-C reaches all processes of the terminal; a signal of CI's only the first, and the lanes hear of it from that one."""
    started = project.path / "started"
    module(project, "test_first", f"import time\ndef test_one(lab):\n    open({str(started)!r}, 'w'); time.sleep(300)", "lab")
    # Where these tests run in the background (nohup make test &), SIGINT is ignored, and what they start inherits that.
    words = ["env", "--default-signal=INT", sys.executable, "-m", "pytest", "--lanes=a:small", "tests"]
    run = subprocess.Popen(words, cwd=project.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    while not started.exists():
        assert run.poll() is None, run.stdout and run.stdout.read()
        time.sleep(0.05)
    os.killpg(run.pid, signal.SIGINT) if whole_group else os.kill(run.pid, signal.SIGINT)
    out, _ = run.communicate(timeout=100)
    assert run.returncode == pytest.ExitCode.INTERRUPTED, out
    assert not (project.path / "lab-a").exists() and "- modules -" in out


def test_when_a_run_stops_no_lane_begins_another_test_and_a_developers_own_lab_stays(project: pytest.Pytester) -> None:
    begun = "    while not (lab.file.parent / 'lab-').exists(): time.sleep(0.02)"
    module(project, "test_first", f"import time\ndef test_bad(lab):\n{begun}\n    assert False", "lab")
    own = "    assert (lab.name, os.environ['LAB']) == ('', '')"
    wait = "    worker = request.config.pluginmanager.get_plugin('lanes-worker')\n    while not worker.stopping: time.sleep(0.02)"
    text = f"import time\ndef test_one(lab, request):\n{own}\n{wait}\ndef test_never(lab): pass"
    module(project, "test_second", text, "lab")
    durations(project, {"tests/test_first.py::test_bad": 900})
    run = Run(project, "--lanes=a:small,lab:small", "-x", "tests")
    assert run.code == pytest.ExitCode.INTERRUPTED
    assert run.says("stopping after 1 failures") and run.says(r"lab +tests/test_second.py \(small\): 1 not run, 1 passed$"), run.out
    assert run.tests("lab") == ["tests/test_second.py::test_one"]
    assert sorted(run.asked) == [" become small", "a become small", "a down"]


def test_labs_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert keeps("lab") and not keeps("a")
    monkeypatch.setenv("DAYTWO_KEEP_LABS", "1")
    assert keeps("a")


def test_a_folder_has_a_harmless_name() -> None:
    assert folder_name("tests/integration/test_x.py::test_a[w1-/etc/x y\x1b]", 3) == "3-test_x-test_a_w1-_etc_x_y_"
    assert len(folder_name("tests/integration/test_x.py::" + "long" * 99, 1)) == 120


def test_what_cannot_be_run_is_an_error(project: pytest.Pytester) -> None:
    module(project, "test_first", "def test_one(lab): pass", "older")
    run = Run(project, "--lanes=a:small", "tests")
    assert run.code == pytest.ExitCode.USAGE_ERROR
    assert "tests/test_first.py::test_one needs a lane of the shape older, and --lanes has none" in run.out + run.result.stderr.str()


def test_a_module_that_patches_threading_fails(project: pytest.Pytester) -> None:
    module(project, "unit/test_first", "from gevent import monkey; monkey.patch_all()\ndef test_one(): pass")
    module(project, "unit/test_second", "def test_two(): pass")
    run = Run(project, "--lanes=u:none", "tests")
    assert run.code == 1
    assert run.says(r"tests/unit/test_first.py has replaced Python's threading by gevent's") and run.tests("u") == [
        "tests/unit/test_second.py::test_two"
    ]


def test_without_the_option_nothing_changes(project: pytest.Pytester) -> None:
    module(project, "test_first", "def test_one(): pass", "lab")
    (project.path / "conftest.py").write_text('pytest_plugins = ["tests.lanes.plugin"]')
    run = Run(project, "tests")
    assert run.code == 0 and run.says(r"^tests/test_first.py \. +\[100%\]$") and run.asked == []
    assert not run.says("lane")
