"""python -m tests.lab.show COMMAND...: print the command as one would type it, then become it."""

from __future__ import annotations

import os
import shlex
import sys


def line(words: list[str], tty: bool) -> str:
    """`$ COMMAND`, quoted for a shell; bold on a terminal."""
    text = f"$ {shlex.join(words)}"
    return f"\033[1m{text}\033[0m" if tty else text


def main() -> int:
    words = sys.argv[1:]
    if not words:
        print("usage: python -m tests.lab.show COMMAND...", file=sys.stderr)
        return 2
    print(line(words, sys.stdout.isatty()), flush=True)
    try:
        # In this process' place: exit code, signals and terminal are the command's own.
        os.execvp(words[0], words)
    except OSError as error:
        print(f"{words[0]}: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main())
