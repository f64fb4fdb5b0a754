"""The passwords of sudo in this process: one try on one host decides before others get the same one, since an account may lock."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterator, Sequence

from gevent.lock import RLock

# sudo(8), sudo-rs: a password is wrong; a password is needed.
_WRONG = re.compile(r"incorrect (?:password|authentication) attempt|Sorry, try again|no password was provided", re.IGNORECASE)
_NEEDED = re.compile(r"sudo: a password is required|sudo-rs: interactive authentication is required|sudo: a terminal is required")


class WrongPassword(Exception):
    """A password that sudo on another host has not accepted: it is not tried again. Names both hosts."""


_accepted: set[str] = set()
# By password: the host that has not accepted it.
_refused: dict[str, str] = {}
_turns: dict[str, RLock] = {}


def is_accepted(password: str) -> bool:
    return password in _accepted


def accepted(password: str) -> None:
    _accepted.add(password)


@contextlib.contextmanager
def first_use(host: str, password: str) -> Iterator[None]:
    """Until some host has accepted a password, it is tried on one host at a time, and on none after a refusal. Raises WrongPassword."""
    if not password or is_accepted(password):
        yield
        return
    with _turns.setdefault(password, RLock()):
        if (other := _refused.get(password)) and not is_accepted(password):
            raise WrongPassword(f"{host}: not tried: sudo on {other} does not accept this password, and more tries may lock the account")
        try:
            yield
        except Exception as error:
            if WRONG in str(error):
                _refused[password] = host
            raise


WRONG = "sudo does not accept the password of the inventory's _sudo_password, or the one that was entered; it was tried once"


def refused(lines: Sequence[str], password: str) -> str:
    """Why sudo did not start a command, by what it printed; "" if it is not sudo's doing, or if the operator can be asked."""
    text = "\n".join(lines)
    if password and (_WRONG.search(text) or _NEEDED.search(text)):
        return WRONG
    if not password and _NEEDED.search(text) and not _has_terminal():
        return (
            "sudo there asks for a password, and there is no terminal to ask you on. Set _sudo_password in its data (from a vault, or "
            "an environment variable), or allow this user sudo without a password"
        )
    return ""


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def asks_once(askpass: str) -> str:
    """Shell code that sets SUDO_ASKPASS to a program which answers once: sudo asks up to three times (sudoers(5), passwd_tries), and each
    wrong answer counts for a lock."""
    once = shlex.quote(f"{askpass}.once")
    lines = " ".join(map(shlex.quote, ("#!/bin/sh", 'rm -f "$0"', f"exec {shlex.quote(askpass)}")))
    # The folder is open to all, as a rule: never write through what somebody has put there (sh(1), noclobber: O_EXCL).
    return f"(umask 077; rm -f {once}; set -C; printf '%s\\n' {lines} >{once} && chmod 700 {once}) || exit 1; SUDO_ASKPASS={once}"
