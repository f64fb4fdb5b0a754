"""change.sh decides nothing by the wall clock: it may be wrong, jump, or run a hundred times too fast."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from roles.engine.transaction import Change, change_script
from roles.engine.transaction.change_script import render
from tests.unit.transaction.samples import KUBELET, STATIC_POD
from tests.unit.transaction.scratch import BAD, LATER, Scratch, needs_time_namespace

FAST = "+10y x100"
JUMPS = ["+10y", "-10y"]


@functools.cache
def library() -> str:
    """The library that lies about the time. The command faketime itself waits for every process below it: for the kubelet, too."""
    return subprocess.run(["faketime", "-f", "+0", "printenv", "LD_PRELOAD"], capture_output=True, text=True, check=True).stdout.strip()


def faked(clock: str) -> tuple[str, ...]:
    """What runs with this wall clock. The clock since boot stays true, as it does when a real wall clock is set."""
    return ("env", "DONT_FAKE_MONOTONIC=1", f"FAKETIME={clock}", f"LD_PRELOAD={library()}")


needs_faketime = pytest.mark.skipif(shutil.which("faketime") is None, reason="faketime is not installed")


def told(node: Scratch) -> list[str]:
    """The log without what differs from run to run: uptime, PID, how long the start took."""
    return [re.sub(r"(PID|settled:) [\d.]+", r"\1", line.partition(" ")[2]) for line in node.log.splitlines()]


@needs_faketime
def test_the_false_clock_is_seen() -> None:
    """Or nothing below is shown."""
    year = int(subprocess.run([*faked("+10y"), "date", "+%Y"], capture_output=True, text=True, check=True).stdout)
    assert year >= int(subprocess.run(["date", "+%Y"], capture_output=True, text=True, check=True).stdout) + 9


@needs_faketime
@pytest.mark.parametrize("verbs", [("apply", "confirm"), ("apply", "revert"), ("apply",)], ids=["confirmed", "reverted", "bad"])
def test_a_false_and_fast_clock_changes_nothing(tmp_path: Path, url: str, verbs: tuple[str, ...]) -> None:
    found = []
    for name, wrapper in (("true", ()), ("false", faked(FAST))):
        node = Scratch(tmp_path / name, url, *((BAD,) if len(verbs) == 1 else ()))
        try:
            node.lay_down()
            codes = [node.verb(verb, wrapper=wrapper) for verb in verbs]
            log = [line.replace(str(node.root), "") for line in told(node)]
            found.append((codes, log, node.state, node.files(), node.argv, node.armed))
        finally:
            node.end()
    assert found[0] == found[1]
    assert found[0][2] == {"confirm": "confirmed", "revert": "reverted", "apply": "reverted"}[verbs[-1]]


@needs_faketime
@pytest.mark.parametrize("jump", JUMPS)
def test_a_jump_of_the_clock_does_not_end_the_time_to_confirm(node: Scratch, jump: str) -> None:
    assert node.verb("apply") == 0
    assert node.verb("confirm", wrapper=faked(jump)) == 0
    assert node.state == "confirmed"


@needs_faketime
@needs_time_namespace
@pytest.mark.parametrize("jump", JUMPS)
def test_no_jump_of_the_clock_gives_more_time(node: Scratch, jump: str) -> None:
    assert node.verb("apply") == 0
    assert node.verb("confirm", wrapper=(*LATER, *faked(jump))) == 1
    assert "was not confirmed in time" in node.output()
    assert node.state == "applied"
    assert node.verb("deadline", wrapper=faked(jump)) == 0
    assert (node.state, node.files(), node.argv) == ("reverted", node.before, node.change.old_argv)


@needs_time_namespace
def test_status_counts_down_by_the_time_since_boot(node: Scratch) -> None:
    assert node.verb("apply") == 0
    assert node.verb("status") == 0
    left = re.findall(r"^reverts=in (-?\d+) s$", node.output(), re.MULTILINE)
    assert 0 < int(left[-1]) <= node.change.confirm_timeout
    assert node.verb("status", wrapper=LATER) == 0
    assert int(re.findall(r"^reverts=in (-?\d+) s$", node.output(), re.MULTILINE)[-1]) == pytest.approx(int(left[-1]) - 86400, abs=60)


# Whatever reads a clock that can jump, in sh and in the tools at hand.
CLOCKS = {
    r"\bdate\b": "now=$(date +%s)",
    r"\bhwclock\b|\btimedatectl\b": "timedatectl show",
    r"-[cma](time|min)\b|-newer": "find . -mmin -5",
    r"\s-[no]t\s": '[ "$a" -nt "$b" ]',
    r"\bstat\b[^\n]*%[.0-9]*[WwXxYyZz]": "stat -c %Y file",
    r"\$\{?(EPOCH\w*|SECONDS|RANDOM)\b": "echo $EPOCHSECONDS",
    r"printf[^\n]*%\(": "printf '%(%s)T'",
    r"--on-calendar\b|OnCalendar": "systemd-run --on-calendar=@1",
    r"\bimport[^\n]*\b(time|datetime)\b": "import sys, time",
    r"systime\(|strftime": "awk 'BEGIN { print systime() }'",
    r"--(since|until)\b": "journalctl --since=-5min",
    r"\btouch\s+-": "touch -r /x /y",
    r"\bls\b[^\n]*-\w*t": "ls -t /x",
}
# Only for the evidence that a person reads; nothing is decided by it.
EVIDENCE = re.compile(r'^ *ls -t "/var/log/pods/.*head -n 2 \| sort \|$', re.MULTILINE)


def clocks(script: str) -> list[str]:
    code = re.sub(r"(^|\s)#.*", "", EVIDENCE.sub("", script))
    return [found[0] for clock in CLOCKS if (found := re.search(clock, code))]


@pytest.mark.parametrize("change", [KUBELET, STATIC_POD], ids=["kubelet", "static-pod"])
def test_the_script_reads_no_wall_clock(change: Change) -> None:
    text = render(change)
    assert clocks(text) == []
    assert clocks(change_script.boot_files("kubelet.service")["recover.sh"].decode()) == []
    lines = text.splitlines(keepends=True)
    for planted in CLOCKS.values():
        assert clocks("".join([*lines[:100], planted + "\n", *lines[100:]])) != [], planted


@needs_faketime
def test_a_script_that_reads_it_is_found_out(tmp_path: Path, url: str) -> None:
    node = Scratch(tmp_path / "node", url)
    node.mutate = lambda text: re.sub(r"(?m)^clock\(\).*$", "clock() { seconds=$(date +%s) ticks=${seconds}00; }", text)
    try:
        node.lay_down()
        assert node.verb("apply") == 0
        assert node.verb("confirm", wrapper=faked("+10y")) == 1
    finally:
        node.end()
