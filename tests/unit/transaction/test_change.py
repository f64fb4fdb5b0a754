"""The change as data and as a script: what is rendered is what was meant, valid POSIX sh, and read back rightly."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.engine.transaction import Change, FileEdit, change_script, report
from roles.engine.transaction.change_script import Holder, render, stage_script
from roles.engine.transaction.model import cmdline_sha256
from tests.unit.transaction.samples import KUBELET, RUNTIME, RUNTIME_TOO, STATIC_POD, change

HOLDER = Holder("r1", "somebody@somewhere", "pyinfra inventory deploy")


HOSTILE = change(
    summary="a\nrm -rf /\n$(reboot)",
    unit="kube'let $(reboot).service",
    files=(FileEdit('/srv/it\'s `here`/$HOME "x"', None, b"\0\xff\n.\n"), FileEdit("/etc/gone", b"x", None)),
)


@pytest.mark.parametrize(
    "made", [KUBELET, STATIC_POD, RUNTIME, RUNTIME_TOO, HOSTILE], ids=["kubelet", "static-pod", "runtime", "runtime-too", "hostile"]
)
@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_the_script_parses(made: Change, shell: str) -> None:
    for text in (render(made), stage_script(made, HOLDER, {})):
        subprocess.run([shell, "-n"], input=text, text=True, check=True)


@pytest.mark.parametrize(("there", "named"), [({"changes", "active"}, "changes"), ({"changes"}, "changes"), ({"active"}, "active")])
def test_the_script_is_named_where_it_stays(tmp_path: Path, there: set[str], named: str) -> None:
    """What is in flight is moved away when the change is over: a name of it could be stale when it is used."""
    for place in there:
        found = tmp_path / place / KUBELET.id / "change.sh"
        found.parent.mkdir(parents=True)
        found.touch()
    told = subprocess.run(
        ["sh", "-c", f'echo "{change_script.script(KUBELET.id, str(tmp_path))}"'], capture_output=True, text=True, check=True
    ).stdout
    assert told == f"{tmp_path}/{named}/{KUBELET.id}/change.sh\n"


def test_a_line_end_in_a_path_is_refused() -> None:
    with pytest.raises(ValueError, match="line end"):
        render(change(files=(FileEdit("/etc/a\nb", None, b""),)))


def test_hostile_names_stay_words(tmp_path: Path) -> None:
    """What is put between quotes comes out of them again, and nothing else happens."""
    script = render(HOSTILE)
    body = script[script.index("unit=") : script.index("# ---- small tools")]
    told = subprocess.run(
        ["sh"], input=f'{body}\nfile 1; printf \'%s\\0\' "$unit" "$target"', text=True, capture_output=True, check=True, cwd=tmp_path
    ).stdout
    assert told.split("\0")[:2] == [HOSTILE.unit, HOSTILE.files[0].path]


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_the_bundle_carries_every_byte(tmp_path: Path, shell: str) -> None:
    """The checksums are of the bytes of the change, and the shell finds nothing wrong with what it has written."""
    texts = {"/a": b"it's `x` $(y) \\0 %s \\n\n\n", "/b": b"", "/c": b"-e no line end", "/d": b"x" * 200_000, "/e": b"\r\x81\xc3\xa4\n"}
    made = replace(HOSTILE, files=(*HOSTILE.files, *(FileEdit(path, None, data) for path, data in texts.items())))
    script = stage_script(made, HOLDER, {}, str(tmp_path / "home"), str(tmp_path / "systemd"))
    bodies = dict(re.findall(r"base64 -d >(\S+) <<'\.' \|\| return 1\n(.*?)\n\.\n", script, re.DOTALL))
    assert base64.b64decode(bodies["after/1"]) == b"\0\xff\n.\n"
    assert "after/2" not in bodies and "change.sh" not in bodies and {"after/6", "after/7", "state", "record.jsonl"} <= {*bodies}
    sums = base64.b64decode(bodies["SHA256SUMS"]).decode()
    for number, data in enumerate(texts.values(), 3):
        assert f"{hashlib.sha256(data).hexdigest()}  after/{number}\n" in sums
    told = subprocess.run([shell, "-s"], input=script, text=True, capture_output=True, check=True)
    assert (told.stdout, told.stderr) == ("staged\n", "") and not [*(tmp_path / "home/changes").iterdir()]


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1))
def test_arguments_hash_as_the_kernel_shows_them(argv: list[str]) -> None:
    shown = b"".join(word.encode() + b"\0" for word in argv)
    assert cmdline_sha256(argv) == hashlib.sha256(shown).hexdigest()


def test_unknown_arguments_are_not_held_to() -> None:
    assert cmdline_sha256(None) == ""


def test_a_diff_shows_what_changes_and_escapes_what_would_disturb_a_terminal() -> None:
    diff = FileEdit("/f", b"same\nold\n", b"same\nnew \x1b[31m\xff").diff()
    assert "-old" in diff and "\x1b" not in diff and "\\x1b[31m" in diff and "No newline" in diff
    assert FileEdit("/f", None, b"a\n").diff().startswith("--- /dev/null")
    assert "+++ /dev/null" in FileEdit("/f", b"a\n", None).diff()


LINES = [
    "log 100 step: place 1",
    "log 101 process: kubelet is PID 7",
    "state=reverted",
    "reason=the kubelet failed",
    "identity=7 555",
    "old_identity=5 444",
    "cmdline=" + base64.b64encode(b"/usr/bin/kubelet\0--v=2\0").decode(),
    "health=200",
    "file.1=absent",
    "evidence="
    + base64.b64encode(
        b'kube-apiserver: 2026-01-01T00:00:00.1Z stderr F E0101 00:00:00.1       1 run.go:72] "command failed" err="unknown"\n'
        b"journal: Failed to start\n"
    ).decode(),
]


def test_a_status_is_read_back() -> None:
    status = report.parse(LINES)
    assert (status.state, status.reason, status.health) == ("reverted", "the kubelet failed", "200")
    assert (status.identity, status.old_identity) == (("7", "555"), ("5", "444"))
    assert status.argv == ("/usr/bin/kubelet", "--v=2")
    assert status.files == ("absent",)
    assert status.steps == ((100, "step: place 1"), (101, "process: kubelet is PID 7"))
    assert status.error_line == '"command failed" err="unknown"'
    assert status.evidence_lines == [status.evidence[0]]


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (["preflight: no gates here", "kubelet.service: Failed with result 'exit-code'."], "preflight: no gates here"),
        (['E0101 00:00:00.1  1 run.go:72] "command failed" err="new"', "I0101 done"], '"command failed" err="new"'),
        ([], ""),
    ],
)
def test_the_line_that_tells_why_is_not_one_of_the_old_process(new: list[str], why: str) -> None:
    old = ['E0101 00:00:00.1  1 kubelet.go:2] "Skipping pod synchronization" err="old"', "Stopping kubelet.service - Kubernetes kubelet..."]
    lines = [*old, "Stopped kubelet.service - Kubernetes kubelet.", "Starting kubelet.service - Kubernetes kubelet...", *new]
    status = report.Status("reverted", evidence=tuple(f"journal: {line}" for line in lines))
    assert status.error_line == why


def test_no_answer_is_no_status() -> None:
    assert report.parse([]).state == "unknown"
