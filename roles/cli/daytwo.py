"""`daytwo DEPLOY [HOST...] [KEY=VALUE...]` starts pyinfra with a deploy of this checkout. All that happens then, and its exit status, are
pyinfra's and the deploy's.

It runs from any folder: paths are those of the folder where it was started. Completion is click's
(https://click.palletsprojects.com/en/stable/shell-completion/).
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

HOME = Path(__file__).resolve().parents[2]
if str(HOME) not in sys.path:
    sys.path.insert(0, str(HOME))  # pyproject installs this file alone

from roles.engine.commands import STARTED_AS, inventories, to_type  # noqa: E402

DEPLOYS = HOME / "deploys"
INVENTORY = "DAYTWO_INVENTORY"
#: The keys that a word without `=` is for, and how help names the word, by the first one that a deploy reads. A deploy that reads none of
#: them gets it as --limit; so does one that changes hosts: with --limit, a host that is down elsewhere does not count.
_PLAIN = {
    "nodes": ("[NODE...]", "NODE is a node: nodes=NODE,NODE."),
    "run": ("[RUN]", "RUN is the name of a run: run=RUN. `daytwo changes` lists them."),
}
_LIMIT = ("[HOST...]", "HOST is a host, a group or a pattern of the inventory: --limit HOST.")
_READS = "Changes nothing"
#: The headings of data keys in help. A key that more than `_FEW` deploys read is none of those that a deploy is about.
_OWN, _CONSENTS, _COMMON = "Data keys", "Consents, each for one run (KEY=true, or what the refusal says)", "Keys that many deploys have"
_FEW = 3
_ALL = "daytwo.every_key"


def keys_of(deploy: str) -> dict[str, dict[str, Any]]:
    """The data keys that a deploy reads, by name, as JSON schema."""
    every = json.loads((HOME / "docs/reference/data.schema.json").read_text(encoding="utf-8"))["properties"]  # noqa: TID251 - our own file
    return {name: found for name, found in every.items() if {deploy, "every deploy"} & set(found["x-read-by"])}


def summary(deploy: str) -> str:
    """The first paragraph of a deploy's docstring."""
    text = ast.get_docstring(ast.parse((DEPLOYS / f"{deploy}.py").read_text(encoding="utf-8"))) or ""
    return text.split("\n\n", maxsplit=1)[0].replace("\n", " ")


def brief(text: str) -> str:
    """What comes before the first colon or full stop."""
    return re.split("[:.]", text, maxsplit=1)[0]


def inventory(given: str | None) -> str:
    """The path of the inventory, or what else pyinfra takes for one. Raises click.UsageError if none is named and there is no mine.py."""
    named = given or os.environ.get(INVENTORY)
    if named:
        return str(Path(named).resolve()) if Path(named).exists() else named
    for folder in (Path.cwd(), HOME):
        if (mine := folder / "inventories/mine.py").exists():
            return str(mine)
    there = ", ".join(inventories())
    raise click.UsageError(f"no inventory: name one with -i or in {INVENTORY}, or write inventories/mine.py; there are: {there}")


def plain_key(deploy: str) -> str | None:
    """The key that gets the words without `=`; None: they are --limit."""
    keys = keys_of(deploy)
    return next((name for name in _PLAIN if name in keys and "only" not in keys), None)


def arguments(deploy: str, words: Sequence[str]) -> list[str]:
    """The words as pyinfra has them."""
    values = [word for word in words if "=" in word]
    plain = [word for word in words if "=" not in word]
    key = plain_key(deploy)
    found = [part for value in values for part in ("--data", value)]
    if plain and key is not None:
        found += ["--data", f"{key}={','.join(plain)}"]
    elif plain:
        found += [part for word in plain for part in ("--limit", word)]
    return found


class Words(click.ParamType[str]):
    """Hosts and KEY=VALUE."""

    name = "words"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only then

        return [CompletionItem(f"{name}=", type="plain") for name in keys_of(str(ctx.info_name)) if name.startswith(incomplete)]


class Deploy(click.Command):
    """A deploy as a command."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Words"):
            for line in _words(str(self.name)):
                formatter.write_text(line)
            if text := example(str(self.name)):
                formatter.write(f"{'':{formatter.current_indent}}Example: {text}\n")
        super().format_options(ctx, formatter)
        groups: dict[str, list[tuple[str, str]]] = {}
        for title, name, text in _rows(str(self.name)):
            groups.setdefault(title, []).append((name, text))
        explained = ctx.meta.get(_ALL) or _OWN not in groups
        for title, rows in groups.items():
            with formatter.section(title):
                if title == _OWN or explained:
                    formatter.write_dl(rows)
                else:
                    formatter.write_text(", ".join(name for name, _ in rows))
        if not explained:
            formatter.write(f"\nAll keys explained: daytwo {self.name} --help-all, or docs/reference/data.md\n")


def _words(deploy: str) -> Iterator[str]:
    """What a word without `=` is."""
    from roles.engine.inputs import unknown_keys  # noqa: PLC0415 - only for help

    key = plain_key(deploy)
    yield _LIMIT[1] if key is None else _PLAIN[key][1]
    if deploy in unknown_keys.OF_OBJECTS:
        yield f"This deploy works on objects of the cluster: {unknown_keys.chosen_by(deploy)}."


def example(deploy: str) -> str:
    """A command with the key that a deploy is about; "" if it has none."""
    from roles.engine.inputs import registry  # noqa: PLC0415 - only for help

    dry = [] if _READS in summary(deploy) else ["--dry"]
    if (key := plain_key(deploy)) is not None:
        text = next(one for one in registry.examples(key) if isinstance(one, str))
        return shlex.join(["daytwo", deploy, *text.split(","), *dry])
    if not (main := registry.main_key(deploy)):
        return ""
    # One that only removes something shows little.
    texts = [one for one in registry.examples(main) if isinstance(one, str) and ("=" not in one or one.count("=absent") < one.count("="))]
    return shlex.join(["daytwo", deploy, f"{main}={(texts or [json.dumps(registry.examples(main)[0])])[0]}", *dry])


def _show_all(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Help with the description of each key."""
    if wanted:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _rows(deploy: str) -> Iterator[tuple[str, str, str]]:
    """The heading, the name and the description of each key, those that the deploy is about first."""
    from roles.engine.inputs import registry  # noqa: PLC0415 - only for help: it imports all models

    reads = keys_of(deploy)
    found: list[tuple[str, str, str]] = []
    shown: set[str] = set()
    for key in registry.every():
        if key.name in reads and key.name not in shown and {deploy, registry.EVERY_DEPLOY} & {*key.declared.deploys}:
            shown.add(key.name)
            default = "" if key.default is None else f" [default: {json.dumps(key.default)}]"
            consent = key.description.startswith("consent: ")
            own = (len(key.declared.deploys) <= _FEW or key.name in _PLAIN) and key.name != "only"
            title = _CONSENTS if consent else _OWN if own and registry.EVERY_DEPLOY not in key.declared.deploys else _COMMON
            found.append((title, key.name, f"{key.description.removeprefix('consent: ')}{default}"))
    yield from sorted(found, key=lambda one: (_OWN, _CONSENTS, _COMMON).index(one[0]))


class Deploys(click.Group):
    """Every file of deploys/."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(path.stem for path in DEPLOYS.glob("*.py"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = cmd_name.replace("-", "_")
        if not (DEPLOYS / f"{name}.py").exists():
            if ctx.resilient_parsing:
                return None
            from roles.engine.inputs import did_you_mean  # noqa: PLC0415 - only for a wrong name

            near = did_you_mean(name, self.list_commands(ctx)) or "; `daytwo` lists all deploys"
            raise click.UsageError(f"there is no deploy {cmd_name!r}{near}", ctx)
        key = plain_key(name)
        return Deploy(
            name,
            callback=click.pass_context(start),
            params=[
                click.Argument(["words"], nargs=-1, type=Words(), metavar=f"{(_LIMIT if key is None else _PLAIN[key])[0]} [KEY=VALUE...]"),
                click.Option(["--dry"], is_flag=True, help="Show the plan, write nothing."),
                click.Option(["-y", "--yes"], is_flag=True, help="Carry out the plan without a question."),
                click.Option(["--data"], multiple=True, metavar="KEY=VALUE", help="The same as KEY=VALUE alone."),
                click.Option(["--limit"], multiple=True, metavar="HOST", help="Only these hosts, groups or patterns."),
                click.Option(["-v", "--verbose"], count=True, help="Show what pyinfra says, too."),
                click.Option(
                    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all, help="Show help with all keys."
                ),
            ],
            help=summary(name),
            short_help=brief(summary(name)),
        )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        texts = {name: summary(name) for name in self.list_commands(ctx)}
        for title, reads in (("Look, change nothing", True), ("Change", False)):
            with formatter.section(title):
                formatter.write_dl([(name, brief(text)) for name, text in texts.items() if (_READS in text) is reads])


def start(
    ctx: click.Context, words: tuple[str, ...], dry: bool, yes: bool, data: tuple[str, ...], limit: tuple[str, ...], verbose: int
) -> None:
    """Become pyinfra."""
    deploy, given = str(ctx.info_name).replace("-", "_"), ctx.obj
    command = [
        str(Path(sys.executable).with_name("pyinfra")),
        "--config",
        str(HOME / "config.py"),
        inventory(given),
        f"{DEPLOYS}/{deploy}.py",
    ]
    command += arguments(deploy, [*words, *data])
    command += [part for host in limit for part in ("--limit", host)]
    command += ["--dry"] * dry + ["-y"] * yes + ["-v"] * verbose
    path = os.pathsep.join([str(HOME), *filter(None, [os.environ.get("PYTHONPATH")])])
    started = shlex.join(["daytwo", *(["-i", given] if given else [])])
    os.execve(command[0], command, {**os.environ, "PYTHONPATH": path, STARTED_AS: started, **to_type(["daytwo", *sys.argv[1:]])})  # noqa: S606 - it becomes pyinfra


@click.group(cls=Deploys, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("-i", "--inventory", "given", metavar="FILE", help=f"The inventory (or {INVENTORY}; inventories/mine.py is found).")
@click.pass_context
def main(ctx: click.Context, given: str | None) -> None:
    """Day-2 configuration of Kubernetes clusters that already run. `daytwo DEPLOY --help` shows the keys of a deploy."""
    ctx.obj = given
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
