"""The frame around each command on a host: what the login shell of the host prints before and after it is no part of its answer.

sshd gives a command to the login shell of the user (sshd(8), LOGIN PROCESS), and that shell first reads start-up files: bash ~/.bashrc
(bash(1), INVOCATION), zsh ~/.zshenv, a shell of `sudo -i` or `su -` /etc/profile and ~/.profile, at its end perhaps ~/.bash_logout. They
can print anything, read the standard input, set variables, or start another program instead of the command. Pure.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from roles.engine.harmless import one_line

# Bytes before an answer. A host that prints more is not waited for.
MOST_BEFORE = 1 << 20
# Characters of an answer: a host that prints without an end would fill the memory of the operator's machine.
MOST_ANSWERED = 1 << 28
# Of complaints nobody reads so many.
MOST_COMPLAINED = 1 << 24
_MOST_SHOWN = 3

# What exported variables and options of a login shell change in a POSIX sh or in a program that it starts (bash(1), SHELLOPTS, TMOUT).
_PROLOGUE = """\
set +aCefuvx
unset TMOUT CDPATH ENV BASH_ENV GREP_OPTIONS POSIXLY_CORRECT
LC_ALL=C
export LC_ALL"""

#: What to do about a login shell that prints or runs something for each command.
ADVICE = (
    "look at what the login shell there runs for each command (~/.bashrc, ~/.profile, ~/.zshenv, /etc/profile.d). Only an interactive shell"
    " should print something or start another program: `case $- in *i*) ;; *) return ;; esac` as the first line does that"
)


def frame(script: str) -> tuple[str, str]:
    """A POSIX sh script that runs `script` in a subshell, with its exit status, between two marks on both outputs; and the word that the
    marks have. The word itself is not in the script, so that a shell that prints its commands does not print a mark."""
    word = secrets.token_hex(8)
    mark = f"printf 'daytwo-%s-{word}%s\\n'"
    text = (
        f"{_PROLOGUE}\n{mark} answer ''\n{mark} answer '' >&2\n(\n{script}\n)\nset -- $?\n"
        f'{mark} end " $1"\n{mark} end " $1" >&2\nexit "$1"'
    )
    return text, word


@dataclass
class Framed:
    """Reads one output of a framed command. `heard` gets each line of the answer at once."""

    word: str
    heard: Callable[[str], None] = lambda line: None
    lines: list[str] = field(default_factory=list)
    #: The last lines before the answer.
    before: list[str] = field(default_factory=list)
    begun: bool = False
    ended: bool = False
    #: Characters of the answer that are read.
    most: int = MOST_ANSWERED
    _skipped: int = 0
    _answered: int = 0
    _returns: bool = False

    def add(self, line: str) -> None:
        """One line of the output, without its line feed."""
        if self.ended:
            return
        if not self.begun:
            self._before(line)
            return
        # A terminal between here and there turns each line feed into two characters (termios(3), ONLCR).
        line = line.removesuffix("\r") if self._returns else line
        if found := re.search(rf"daytwo-end-{self.word} [0-9]+$", line):
            self.ended = True
            line = line[: found.start()]
            if not line:
                return
        self._answered += len(line) + 1
        if self.too_long:
            return
        self.lines.append(line)
        self.heard(line)

    def add_all(self, lines: Iterable[str]) -> Framed:
        for line in lines:
            self.add(line)
        return self

    def _before(self, line: str) -> None:
        self._returns = line.endswith("\r")
        # A prompt without a line feed may stand before it.
        if line.removesuffix("\r").endswith(f"daytwo-answer-{self.word}"):
            self.begun = True
            return
        self._skipped += len(line) + 1
        if line.strip():
            self.before = [*self.before, line][-_MOST_SHOWN:]

    @property
    def too_much(self) -> bool:
        """More was printed before the answer than anybody waits for."""
        return not self.begun and self._skipped > MOST_BEFORE

    @property
    def too_long(self) -> bool:
        """The answer is longer than any that daytwo asks for."""
        return self._answered > self.most

    @property
    def endless(self) -> bool:
        return self.too_much or self.too_long


def not_begun(printed: Iterable[str], complained: Iterable[str], code: int | None = None) -> str:
    """Why there is no answer: the command has not started. `printed` and `complained`: the words there on both outputs; `code`: the exit
    status, if it ended."""
    said, wrong = (one_line(" | ".join(words)) for words in (printed, complained))
    if code:
        return f"the command did not start there (exit status {code}){f': {wrong}' if wrong else f'{_quoted(said)}; {ADVICE}'}"
    ending = "the login shell there ended without the command" if code == 0 else "the login shell there has not started the command"
    return f"{ending}{_quoted(said or wrong)}; {ADVICE}"


def _quoted(said: str) -> str:
    return f": it printed `{said}`" if said else ""
