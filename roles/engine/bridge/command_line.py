"""What the command line of pyinfra names must be there, and what it asks must be answered; otherwise the run fails.

pyinfra itself ends with exit status 0 if an inventory does not exist, if no host matches --limit, if the operator declines, and after
Ctrl-C; and it ignores one of several patterns that matches nothing, so that the run is another one than the one that was meant. Written for
pyinfra 3.10 (pyinfra_cli/cli.py, pyinfra_cli/inventory.py). config.py calls `guard` before pyinfra reads the inventory.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import gevent
from pyinfra.api.inventory import Inventory
from pyinfra.context import ctx_config, ctx_state

from roles.engine import commands, folding, voice
from roles.engine.bounds import once, read_json
from roles.engine.bridge.unforeseen import RunRefused
from roles.engine.inputs import did_you_mean, listing, registry, unmatched
from roles.engine.inputs.broken_json import corrected, without_beginning
from roles.engine.inputs.unknown_keys import OF_OBJECTS, OWN_PREFIX, chosen_by
from roles.engine.inputs.values import converted
from roles.engine.transaction import mask_text

_HOME = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class _Command:
    """What the command line of this process asks for. `quiet`: see `is_quiet`; `deploys`: their names."""

    quiet: bool = False
    dry: bool = False
    deploys: tuple[str, ...] = ()


_command = _Command()
# Takes away the only line that pyinfra has written before it reads config.py.
_ONE_LINE_UP = "\x1b[1A\x1b[2K"
#: As shells have it for a signal, so that an interrupted run never looks like one that is done.
SIGNALLED = 128


def guard() -> None:
    """From now on what matches nothing ends the run with exit status 1. Calling it again changes nothing."""
    global _command, _ending  # noqa: PLW0603 - one process is one run
    cli: Any = sys.modules.get("pyinfra_cli.cli")  # importing it would change the interpreter (gevent's monkey patches)
    if cli is None:
        return
    context, _ending = cli.click.get_current_context(silent=True), 0  # other greenlets have none
    if context is not None:
        options = context.params
        _command = _Command(_leaves_pyinfra_out(options), bool(options["dry"]), tuple(Path(word).stem for word in options["operations"]))
        commands.use_inventory(options["inventory"], os.environ.get(commands.STARTED_AS, ""))
    if hasattr(cli.make_inventory, "guarded"):
        return
    if _command.quiet and sys.stderr.isatty():
        sys.stderr.write(_ONE_LINE_UP)
    cli.make_inventory = _checking_inventory(cli.make_inventory)
    cli._get_inventory_pattern_matches = _checking_patterns(cli._get_inventory_pattern_matches)
    cli._apply_inventory_exclude = _checking_rest(cli._apply_inventory_exclude)
    cli._set_override_data = _checking_data(cli._set_override_data)
    cli._do_confirm = _confirmed
    cli._handle_commands = _asking(cli._handle_commands)
    cli._exit = _exiting(cli._exit)
    cli.getpass = _asking_password(cli.getpass)
    cli._set_fail_prompts = lambda state, config: None  # a run that has failed asks nothing; config.py says that it ends
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)


def require_guard() -> None:
    """Raises RunRefused in a command of pyinfra that has not read config.py, which pyinfra takes from the folder that it is started in:
    without it no host key is checked by the rules of the operator's ssh, and nothing else of this package holds."""
    cli: Any = sys.modules.get("pyinfra_cli.cli")
    if cli is not None and not hasattr(cli.make_inventory, "guarded"):
        raise RunRefused(
            f"pyinfra has not read daytwo's config.py, which checks host keys and what the command line names: start it in {_HOME}, or with"
            f" --chdir {_HOME}. pyinfra has connected already, and its own rules accept and save the key of any new host."
            " Check what known_hosts has of these hosts"
        )


_ending = 0


def end_with(code: int) -> None:
    """The exit status of this process, instead of 0, if no host fails."""
    global _ending  # noqa: PLW0603  # one process is one run
    _ending = code


def ending() -> int:
    """What `end_with` was given, or 0."""
    return _ending


def _exiting(leave: Callable[[], None]) -> Callable[[], None]:
    @functools.wraps(leave)
    def exiting() -> None:
        if _ending and not (ctx_state.isset() and ctx_state.get().failed_hosts):
            sys.exit(_ending)
        leave()

    return exiting


def _leave(number: int, _: Any) -> None:
    """Until a run has its own handler (hosts.on_interrupt)."""
    leave_by(number, "\nstopped before anything was changed\n")


def leave_by(number: int, said: str = "") -> None:
    """End this process as if by a signal, with a last word on standard error. Nothing was changed yet."""

    def leave() -> None:
        sys.stderr.write(said)
        raise SystemExit(SIGNALLED + number)

    # In the main greenlet, which waits in a question to the operator, no other would run. Any other one might ignore SystemExit.
    if gevent.getcurrent().parent is None:
        leave()
    gevent.spawn(leave)


# ---- the inventory


def check_inventory(name: str, found: Inventory) -> Inventory:
    """The inventory. Raises RunRefused if it has no host, with the inventories that there are."""
    missing = name.endswith(".py") and not Path(name).exists()
    if not missing and len(found):
        return found
    there = [path for path in commands.inventories() if path != name]
    beside = [str(path) for path in Path(name).parent.glob("*.py") if str(path) != name]
    # `lab` may mean inventories/lab.py.
    by_name = next((path for path in there if Path(path).stem == name), "")
    near = f", did you mean {by_name!r}?" if by_name else did_you_mean(name, [*there, *beside])
    why = f"there is no such inventory{near or ';'}" if not Path(name).exists() else "the inventory has no hosts;"
    raise RunRefused(f"{name}: {why} there are: {listing(there)}")


def _checking_inventory(make: Callable[..., Inventory]) -> Callable[..., Inventory]:
    @functools.wraps(make)
    def checked(inventory: str, *arguments: Any, **options: Any) -> Inventory:
        found = check_inventory(inventory, make(inventory, *arguments, **options))
        _ask_for_sudo(found)
        return found

    checked.guarded = True  # type: ignore[attr-defined]
    return checked


# ---- --limit and --exclude


def _checking_patterns(matches: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    @functools.wraps(matches)
    def checked(inventory: Inventory, patterns: Iterable[str], option: str) -> list[Any]:
        patterns = [part for pattern in patterns for part in _parts(inventory, pattern)]
        if problems := [text for pattern in patterns for text in _unmatched(inventory, pattern, option)]:
            raise RunRefused("; ".join(problems))
        return matches(inventory, patterns, option)

    return checked


def _parts(inventory: Inventory, pattern: str) -> list[str]:
    """`w1,w2` as two patterns, which pyinfra takes for one."""
    parts = [part.strip() for part in pattern.split(",")]
    return [pattern] if inventory.get_host(pattern, None) else [part for part in parts if part] or [pattern]


def _unmatched(inventory: Inventory, pattern: str, option: str) -> list[str]:
    hosts = [host.name for host in inventory]
    groups = [name for name, members in inventory.groups.items() if members]
    if _matches(pattern, hosts, groups):
        return []
    # The command `daytwo` may have made the option from a plain word.
    typed = "" if option == "--limit" and commands.started_as() else f"{option} "
    objects = [f". deploys/{one}.py works on objects of the cluster: {chosen_by(one)}" for one in _command.deploys if one in OF_OBJECTS]
    what = "no host and no group with hosts in this inventory"
    return [f"{typed}{text}{''.join(objects)}" for text in unmatched([pattern], [*hosts, *groups], what)]


def _matches(pattern: str, hosts: Sequence[str], groups: Sequence[str]) -> bool:
    """As pyinfra matches: a group, or a shell pattern of names."""
    return pattern in groups or any(fnmatch(host, pattern) for host in hosts)


def _checking_rest(apply: Callable[..., list[Any] | None]) -> Callable[..., list[Any] | None]:
    @functools.wraps(apply)
    def checked(inventory: Inventory, limit: list[Any] | None, exclude: Iterable[str] | None) -> list[Any] | None:
        found = apply(inventory, limit, exclude)
        if found is not None and not found:
            raise RunRefused("no host is left for this run: --exclude takes all of them out")
        return found

    return checked


# ---- --data


def _checking_data(read: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    @functools.wraps(read)
    def checked(data: Sequence[str], *arguments: Any, **options: Any) -> dict[str, Any]:
        if problems := data_problems(data):
            raise RunRefused("; ".join(problems))
        return read(data, *arguments, **options)

    return checked


def data_problems(data: Sequence[str]) -> list[str]:
    """What cannot be meant in the words after --data. Values are not repeated: they may be secret."""
    keys = [word.partition("=")[0] for word in data]
    twice = [f"--data {key} is given {keys.count(key)} times; give it once" for key in dict.fromkeys(keys) if keys.count(key) > 1]
    return [*twice, *filter(None, map(_data_problem, data))]


def _data_problem(word: str) -> str:
    key, equals, value = word.partition("=")
    if not key.strip():
        return f"--data ={'...' if value else ''}: there is no key before the equals sign; write --data KEY=VALUE"
    if not equals:
        return f"--data {key}: it has no value; write --data {key}=VALUE"
    if key.startswith(OWN_PREFIX):
        return ""
    # pyinfra reads `null` as None, and a key with None counts as one that is not given: the run would be wider than was meant.
    if value.strip() in ("", "null"):
        return _EMPTY.format(key=key, what=value.strip() or "empty")
    # pyinfra reads with int(), which takes `1_000`, ` 5` and the digits of every script for a number.
    if converted(value, int) and not re.fullmatch("-?[0-9]+", value):
        return (
            f"--data {key}: pyinfra would change its value to a number; write a number in the digits 0 to 9 alone, without + _ or a blank"
        )
    if value.lstrip()[:1] in ("{", "["):
        return _json_problem(key, value)
    if registry.may_be_json(key):
        problems, whole = without_beginning(value)
        return _broken(key, problems, whole) if whole else ""
    return ""


_EMPTY = "--data {key}: the value is {what} (is a variable of your shell not set?); give a value, or leave the key out"


def _json_problem(key: str, value: str) -> str:
    try:
        if not read_json(value, pairs=once) and not registry.may_be_empty(key):
            return _EMPTY.format(key=key, what="empty")
    except json.JSONDecodeError as error:
        problems, whole = corrected(value)
        unclear = f"{error.msg[:1].lower()}{error.msg[1:]}, at character {error.pos + 1} of the value"
        return _broken(key, problems or [unclear], whole)
    except ValueError as error:
        return f"--data {key}: broken JSON: {error}"
    return ""


def _broken(key: str, problems: Sequence[str], whole: str) -> str:
    """`whole`: the value as JSON, if it is clear. It is repeated only for keys of daytwo, and if nothing in it looks like a secret."""
    line = f"--data {shlex.quote(f'{key}={whole}')}"
    shown = bool(whole) and key in registry.written_names() and key not in _MAY_BE_SECRET and mask_text(line) == line
    way_out = f"write {line}" if shown else f"JSON has double quotes, and the shell wants single ones around the whole: {_EXAMPLE}"
    return f"--data {key}: broken JSON: {', '.join(problems)}; {way_out}"


#: Keys whose values have contents of files.
_MAY_BE_SECRET = ("control_plane_files",)
_EXAMPLE = """--data 'KEY={"NAME": "VALUE"}'"""


# ---- the question before a run


def _asking(handle: Callable[..., tuple[bool, Any, Any]]) -> Callable[..., tuple[bool, Any, Any]]:
    """Reads the deploys, and then asks, unless -y or --dry answers. pyinfra itself would show its own table, and would say that it may
    change more than that; it still does so with -v."""

    @functools.wraps(handle)
    def asked(*arguments: Any, **options: Any) -> tuple[bool, Any, Any]:
        can_ask, state, config = handle(*arguments, **options)
        if not can_ask or not _command.quiet or options.get("json_output"):
            return can_ask, state, config
        if _command.dry and state.get_op_order():
            voice.conclude("PLANNED, nothing was written (--dry)")
        elif state.check_for_changes and not _command.dry:
            _confirmed()
        return False, state, config

    return asked


def only_plans() -> bool:
    """The command has --dry."""
    return _command.dry


_later: list[Callable[[], str]] = []


def _ask_for_sudo(inventory: Inventory) -> None:
    """The password of --same-sudo-password, once the inventory says that a host uses sudo."""
    config = ctx_config.get()
    if _later and (config.SUDO or any(host.data.get("_sudo") for host in inventory)):
        config.SUDO_PASSWORD = _later[-1]()
        config.lock_current_state()
    _later.clear()


def _asking_password(ask: Callable[[str], str]) -> Callable[[str], str]:
    @functools.wraps(ask)
    def asked(prompt: str = "", *, now: bool = False) -> str:
        if "sudo" in prompt and not now:
            _later.append(lambda: asked(prompt, now=True))
            return ""
        try:
            return ask(prompt)
        except EOFError:
            what = prompt.strip(": ")
            raise RunRefused(
                f"the {what} cannot be asked for: there is no terminal, and standard input is at its end. Type it on a terminal; or leave"
                " that option out, and set _sudo_password or ssh_password in the inventory from a variable or a vault"
            ) from None

    return asked


def is_quiet() -> bool:
    """Only daytwo speaks: the command runs deploy files, and neither -v nor an option for finding faults."""
    return _command.quiet


def _leaves_pyinfra_out(options: Mapping[str, Any]) -> bool:
    shows = ("verbosity", "debug", "debug_all", "debug_facts", "debug_operations")
    return all(word.endswith(".py") for word in options["operations"]) and not any(options[name] for name in shows)


_DECLINED = "nothing was changed: the answer was not yes"


def _confirmed(_: str = "") -> bool:
    """The operator has read the plan and has typed yes. Raises RunRefused otherwise."""
    state: Any = ctx_state.get()
    if not (works := _works(state)):
        return True  # nothing follows, so there is nothing to ask
    sys.stderr.write("".join(f"\n{line}" for line in works) + "\nType yes to carry out the plan above: ")
    sys.stderr.flush()
    try:
        answer = input()
    except EOFError:
        raise RunRefused(
            "nothing was changed: nobody can answer the question, since standard input is at its end; -y answers it, --dry only plans"
        ) from None
    if answer.strip() != "yes":
        raise RunRefused(_DECLINED, verdict=f"NOT STARTED, {_DECLINED}")
    return True


def _works(state: Any) -> list[str]:
    """What follows, and on which hosts."""
    found = []
    for name in state.get_op_order():
        hosts = sorted(host.name for host in state.inventory.iter_activated_hosts() if name in state.ops[host])
        found.append(f"{', '.join(state.get_op_meta(name).names).replace(' | ', ': ')}; on {folding.hosts(hosts)}")
    return found
