"""Commands of daytwo that an operator can paste."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

#: The variables of the command `daytwo` (roles/cli/): how it was called, and all its words.
STARTED_AS, TYPED = "DAYTWO_STARTED_AS", "DAYTWO_TYPED"
# A deploy in a sentence, with what stands before it where it is a whole command already, such as a recorded one with its paths; or --data
# alone, before a key or a colon.
_OPTIONS = r"(?: --data (?:'[^']*'|[^\s']\S*)| --?[a-z][\w-]*)*"
_NAMED = re.compile(
    rf"(?<![\w./-])(\S*pyinfra (?:\S+ ){{1,4}}?(?:/\S*/)?)?deploys/([a-z_]+)\.py({_OPTIONS})|(?<![\w-])--data(?: (?=['\w])|(?=:))"
)
_inventory, _started_as = "INVENTORY", ""
_HOME = Path(__file__).resolve().parents[2]


def use_inventory(name: str, started_as: str = "") -> None:
    """From now on the commands are for this inventory, as the operator has named it. `started_as`: how the command `daytwo` was called."""
    global _inventory, _started_as
    _inventory, _started_as = name, started_as


def command(deploy: str, **data: str) -> str:
    """`pyinfra inventories/prod.py deploys/rollback.py --data run=r1`, or `daytwo rollback run=r1`, for the inventory of this run."""
    if _started_as:
        return f"{_started_as} {shlex.join([deploy, *(f'{key}={value}' for key, value in data.items())])}"
    return shlex.join(["pyinfra", *words(deploy, **data)])


def words(deploy: str, **data: str) -> list[str]:
    """The same command as the words that pyinfra takes."""
    return [_inventory, f"deploys/{deploy}.py", *(word for key, value in data.items() for word in ("--data", f"{key}={value}"))]


def typed() -> list[str]:
    """The command line of this process, as the operator typed it."""
    return shlex.split(os.environ.get(TYPED, "")) or [Path(sys.argv[0]).name, *sys.argv[1:]]


def to_type(words: Sequence[str]) -> dict[str, str]:
    """The environment in which `typed` are these words."""
    return {TYPED: shlex.join(words)}


def started_as() -> str:
    """How the command `daytwo` was called; "" if pyinfra itself was."""
    return _started_as


def inventories() -> list[str]:
    """The paths of the inventories of the working directory and of this checkout, as a command can name them."""
    here = Path.cwd()
    found = [path for folder in dict.fromkeys((here, _HOME)) for path in sorted((folder / "inventories").glob("*.py"))]
    return [str(path.relative_to(here) if path.is_relative_to(here) else path) for path in found]


def whole(text: str) -> str:
    """A sentence in which each `deploys/NAME.py`, with the options behind it, is a command for the inventory of this run, and in which
    `--data KEY=VALUE` is `KEY=VALUE` if that is how the operator types it."""
    return _NAMED.sub(lambda found: _whole(found[2], found[3]) if found[2] and not found[1] else _key(found[0]), text)


def as_typed(text: str) -> str:
    """As `whole`, for text with columns: deploys stay as they are."""
    return _NAMED.sub(lambda found: _key(found[0]), text)


def _key(found: str) -> str:
    if not _started_as or "deploys/" in found:
        return found
    return "" if found.endswith(" ") else "the command line"


def _whole(deploy: str, options: str) -> str:
    return command(deploy) + (options.replace(" --data ", " ") if _started_as else options)
