"""Any flag of a command line as a list of values, as pflag reads it: a flag that is given several times has several.

What several values mean depends on the flag's type (spf13/pflag): lists (`strings`: string_slice.go, `stringArray`) and maps
(`stringToString`; k8s.io/component-base/cli/flag: map_string_string.go, `namedCertKey`) add up in order, and of all others the last one
counts. A list of `strings` may be given as one value with commas; a `stringArray` has one item for each flag.
"""

from __future__ import annotations

from collections.abc import Sequence

from roles.engine.editing import flags
from roles.engine.editing.errors import FormatError
from roles.engine.editing.flags import FlagChanges, FlagValues
from roles.engine.editing.mapped import Mapped

_BOOLEANS = ("true", "false")


def is_switch(values: FlagValues) -> bool:
    """True for the value of a boolean flag, which never takes the next word as its value (pflag, NoOptDefVal)."""
    return values is not None and len(values) == 1 and values[0] in _BOOLEANS


def given(argv: Sequence[str], name: str, wanted: FlagValues = None) -> FlagValues:
    """The values that a command line gives to a flag. `wanted`: the desired ones, which show whether it is a switch."""
    found = flags.flag_values(argv, name, switch=is_switch(wanted) or _bare(argv, name))
    return tuple(found) or None


def _bare(argv: Sequence[str], name: str) -> bool:
    """True if each `--name` without `=` is followed by another flag, or by nothing: then it has no value."""
    words = [*argv, "--"]
    places = [number for number, word in enumerate(argv) if flags.name_of(word) == name and "=" not in word]
    return bool(places) and all(words[number + 1].startswith("-") for number in places)


def every(argv: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """All flags of a command line, each with its values. A flag without `=` has the next word, unless that is a flag itself."""
    names = dict.fromkeys(name for word in argv[1:] if (name := flags.name_of(word)))
    return {name: values for name in names if (values := given(argv, name))}


def same(now: FlagValues, wanted: FlagValues) -> bool:
    """Whether two lists of values mean the same for every type of flag that `wanted` fits: booleans by their value; several values also
    as one with commas."""
    if now is None or wanted is None or now == wanted:
        return now == wanted
    if is_switch(wanted):
        try:
            return flags.parse_bool(now[-1]) == flags.parse_bool(wanted[0])
        except FormatError:
            return False
    several = len(now) > 1 or len(wanted) > 1
    return several and len(wanted) > 1 and _items(now) == _items(wanted)


def _items(values: tuple[str, ...]) -> list[str]:
    return [item for value in values for item in value.split(",")]


def change(lists: Sequence[Sequence[str]], changes: FlagChanges) -> list[list[str]]:
    """The parts of a command line (command and args) after which each flag has the desired values; the same parts if it has them.

    Values replace those that are there, the last with the last, since it counts. Further ones follow them, or stand at the end. Raises
    FormatError for a command line to whose end no flag can be added, and for a flag to remove whose value is not clear.
    """
    words = [(number, word) for number, part in enumerate(lists) for word in part]
    for name, values in changes.items():
        words = _change(words, name, values)
    return [[word for part, word in words if part == number] for number in range(len(lists))]


_Words = list[tuple[int, str]]


def _change(words: _Words, name: str, values: FlagValues) -> _Words:
    argv = [word for _, word in words]
    if same(given(argv, name, values), values):
        return words
    mapped = [Mapped.of(word.encode("utf-8", "surrogateescape")) for word in argv]
    flags.check_inside(mapped, name)
    place = {id(word): number for number, word in enumerate(mapped)}
    found = flags.find(mapped, name, switch=is_switch(values) or _bare(argv, name))
    places = [[place[id(word)] for word in flag.words] for flag in found]
    for where in places:
        if values is None and len(where) == 2 and argv[where[1]] in _BOOLEANS:
            # pflag takes no boolean's value from the next word: that word may be an argument by itself.
            raise FormatError(f"it is not clear whether {argv[where[1]]} is the value of --{name}", way_out=f"write --{name}=VALUE")
    wanted = list(values or ())
    kept = [places[number] for number in flags.staying(found, wanted)]
    gone = {number for where in places if where not in kept for number in where}
    made: dict[int, str] = {}
    for where, value in zip(kept, wanted, strict=False):
        written = argv[where[0]].partition("=")[0]
        made |= {where[1]: value} if len(where) == 2 else {where[0]: f"{written}={value}"}
    new = [f"--{name}={value}" for value in wanted[len(kept) :]]
    behind = kept[-1][-1] if kept else len(words) - 1
    if new and not kept:
        flags.check_end(argv)
    after: _Words = []
    for number, (part, word) in enumerate(words):
        if number not in gone:
            after.append((part, made.get(number, word)))
        if number == behind:
            after += [(part, flag) for flag in new]
    return after
