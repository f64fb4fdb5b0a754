"""A login shell that prints, and worse: a real bash reads a start-up file before each command, over a real SSH server on loopback."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from typing import Any

import pytest
from pyinfra.connectors.util import CommandOutput, OutputLine

from roles.engine.bridge.hosts import _become
from roles.engine.framed import Framed, frame
from tests.unit.bridge.ssh_server import OWN, Server

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is the login shell here")

# What a start-up file may do; the answer is the same with each of them.
TALK = {
    "nothing": "",
    "a banner": 'echo "*** authorised use only, host $(hostname) ***"',
    "a prompt without a line feed": "printf 'Welcome> '",
    "complaints": "echo 'mesg: ttyname failed: Inappropriate ioctl for device' >&2",
    "records of its own": "echo 'daytwo 1'; echo end; echo state=confirmed; echo 'verdict?'; echo staged",
    "Latin-1 and escapes": r"printf 'Acc\xe8s r\xe9serv\xe9 \033[31m\0\n'",
    "a thousand lines": "seq 1000",
    "what it runs": "set -x",
    "the command itself": 'echo "running: $BASH_EXECUTION_STRING"',
    "each command": "trap 'echo \"$BASH_COMMAND\"' DEBUG",
    "words at the end": "trap 'echo logout; echo logout >&2' EXIT",
    "strict": "set -eu",
    "strict for all below": "set -eu; set -o noclobber; export SHELLOPTS",
    "traced for all below": "set -x; export SHELLOPTS",
    "aliases": "shopt -s expand_aliases; alias printf='echo no' cat='echo no' exit='echo no'",
    "a time limit": "export TMOUT=1 CDPATH=/tmp:/ POSIXLY_CORRECT=1",
    "another locale": "export LC_ALL=de_DE.UTF-8 LANG=de_DE.UTF-8 LANGUAGE=de",
    "a narrow path": "PATH=/usr/bin:/bin",
    "reads": 'read -r -t 1 line; echo "I have read: $line"',
    "in the background": "sleep 0 &",
}
# A pipe of false; a variable that is not set; a file that exists; an end without a line feed.
SCRIPT = 'cat; false | true; echo ${unset:-}"it\'s\\ done"; echo $LC_ALL; echo oops >&2; echo >/dev/null; printf a; exit 3'
ASKS = 'main() { echo ready; read -r word; echo "got $word"; }\nmain; exit 0\n'
REPLIES = {"ready": "go\n", "got go": None}
# What ends before the command, or never gets to it: the script's input is not for it.
NEVER = {
    "echo 'Maintenance until noon'; exit 0": "ended without the command: it printed `Maintenance until noon`; .*bashrc",
    "exec cat": "no answer within 5 s; the login shell there has not started the command; .*bashrc",
    "exec true": "ended without the command; .*bashrc",
    "echo 'No entry' >&2; exit 1": r"did not start there \(exit status 1\): No entry$",
    "echo 'No entry'; exit 1": r"did not start there \(exit status 1\): it printed `No entry`; .*bashrc",
    "exit 7": r"did not start there \(exit status 7\); .*bashrc",
    "yes $(seq -s - 500) | head -c 2000000": "has not started the command: it printed `1-2-3.*bashrc",
    "exec yes complaint >&2": "the answer of a command has no end",
    "echo 'Who are you?'; read -r name": r"no answer within 5 s; the login shell there has not started .* printed `Who are you\?`; .*bashrc",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """By the text of the start-up file: the answer to SCRIPT, and with `asks ` before it, that to ASKS."""
    folder, questions = tmp_path_factory.mktemp("shells"), {}
    for number, text in enumerate([*TALK.values(), *NEVER]):
        (folder / f"{number}").write_text(f"{text}\n")
        limit = 5 if "within 5 s" in NEVER.get(text, "") else 60
        questions[text] = [f"{SCRIPT} # file {number}.", "first\nsecond\n", limit, {}]
        if text not in NEVER:
            questions[f"asks {text}"] = [f"sh -s # file {number}.", ASKS, 60, REPLIES]
    server = Server(OWN)
    server.shell = lambda command: ["env", f"BASH_ENV={folder}/{command.partition('# file ')[2].partition('.')[0]}", "bash", "-c", command]
    program = [sys.executable, "-m", "tests.unit.bridge.asks", str(server.port), str(folder)]
    done = subprocess.run(program, input=json.dumps(list(questions.values())), stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    server.close()
    return dict(zip(questions, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("start_up", TALK.values(), ids=TALK)
def test_the_answer_is_the_commands_own(answers: dict[str, dict[str, Any]], start_up: str) -> None:
    lines = ["first", "second", "it's\\ done", "C", "a"]
    assert answers[start_up] == {"code": 3, "stdout": lines, "stderr": ["oops"], "heard": lines}
    # As a change and the cluster's lock do: words come in while it runs.
    lines = ["ready", "got go"]
    assert answers[f"asks {start_up}"] == {"code": 0, "stdout": lines, "stderr": [], "heard": lines}


@pytest.mark.parametrize(("start_up", "words"), NEVER.items())
def test_a_command_that_never_started_has_no_answer(answers: dict[str, dict[str, Any]], start_up: str, words: str) -> None:
    assert re.match(rf"w1: .*{words}", answers[start_up]["error"]), answers[start_up]


def test_a_terminal_in_between_changes_line_feeds_only() -> None:
    text, word = frame("true")
    assert f"daytwo-answer-{word}" not in text
    found = Framed(word).add_all(["hello\r", f"daytwo-answer-{word}\r", "one\r", "two\r\r", f"daytwo-end-{word} 0\r", "bye\r"])
    assert found.lines == ["one", "two\r"] and found.before == ["hello\r"]
    plain = Framed(word).add_all([f"> daytwo-answer-{word}", "one\r", f"twodaytwo-end-{word} 0"])
    assert plain.lines == ["one\r", "two"] and plain.ended


def test_what_pyinfra_asks_for_itself_is_framed_too() -> None:
    class Host:
        def __init__(self) -> None:
            self.connector_data: dict[str, str] = {}

        def get_temp_dir_config(self) -> str:
            return "/tmp"

        def run_shell_command(self, command: str) -> tuple[bool, CommandOutput]:
            word = command.partition("daytwo-%s-")[2].partition("%s")[0]
            lines = ["*** banner ***", f"daytwo-answer-{word}", "/tmp/askpass-1", f"daytwo-end-{word} 0"]
            return True, CommandOutput([OutputLine("stdout", line) for line in lines])

    host: Any = Host()
    command, _ = _become(host, "true", {"_sudo": True, "_sudo_password": "x"})
    assert "/tmp/askpass-1" in command and "SUDO_ASKPASS=/tmp/askpass-1.once;" in command
