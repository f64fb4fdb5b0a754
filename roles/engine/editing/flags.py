"""Command lines as Kubernetes components read them: pflag's syntax, and the list behind --feature-gates.

Sources: spf13/pflag flag.go (parseLongArg), k8s.io/component-base/featuregate/feature_gate.go (Set),
k8s.io/component-base/cli/flag/flags.go (WordSepNormalizeFunc), Go strconv.ParseBool.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

from roles.engine.editing.errors import FormatError
from roles.engine.editing.mapped import Mapped, Splice

# A gate's desired value; None removes it.
GateChanges = Mapping[str, bool | None]
#: The values of a flag, in order; None: the flag is not given.
FlagValues = tuple[str, ...] | None
FlagChanges = Mapping[str, FlagValues]

FEATURE_GATES = "feature-gates"
# Control-plane components accept `kube:NAME` for NAME since 1.31, in all places or in none (k8s.io/component-base/compatibility).
KUBE = "kube:"
# The values of a flag that systemd and pflag read literally, wherever they are written.
_WRITABLE = re.compile(r"[A-Za-z0-9_./:,=<>@+%\[\]-]*")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "busybox"})
_TRUE = {"1", "t", "T", "TRUE", "true", "True"}
_FALSE = {"0", "f", "F", "FALSE", "false", "False"}
# How many command lines, and values of their flags, are cached.
_REMEMBERED = 256


def parse_bool(text: str) -> bool:
    """A boolean as Go's strconv.ParseBool accepts it. Raises FormatError for anything else, such as `yes`."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise FormatError("is not a boolean", value=text, way_out="write true or false")


@dataclass(frozen=True)
class GateItem:
    """One `NAME=VALUE` of a gate list. `prefix` is KUBE if it is written before the name."""

    name: str
    value: bool
    prefix: str
    whole: Mapped


@dataclass(frozen=True)
class Flag:
    """One flag of a command line: its word(s), and its value (None if it has none)."""

    words: tuple[Mapped, ...]
    value: Mapped | None

    @property
    def items(self) -> tuple[GateItem, ...]:
        """Those of --feature-gates. Raises FormatError if the component would refuse it."""
        if self.value is None:
            raise FormatError("--feature-gates is the last word and has no value", value=self.words[0].string, way_out="add its value")
        return _items(self.value)


def parse_gates(value: str) -> list[tuple[str, bool]]:
    """The items of a gate list in order. Raises FormatError if the component would refuse it."""
    return [(item.name, item.value) for item in _items(Mapped.of(value.encode("utf-8", "surrogateescape")))]


def _items(value: Mapped) -> tuple[GateItem, ...]:
    found = []
    position = 0
    for part in value.text.split(b","):
        whole = value.slice(position, position + len(part))
        position += len(part) + 1
        if not part:
            continue
        name, equals, written = part.partition(b"=")
        if not equals:
            raise FormatError("a feature gate has no value", value=whole.string, way_out="write NAME=true or NAME=false")
        try:
            boolean = parse_bool(written.strip().decode("utf-8", "surrogateescape"))
        except FormatError as error:
            raise FormatError("a feature gate's value is not a boolean", value=whole.string, way_out=error.way_out) from None
        full = name.strip().decode("utf-8", "surrogateescape")
        bare = full.removeprefix(KUBE)
        found.append(GateItem(bare, boolean, full.removesuffix(bare), whole))
    return tuple(found)


def _normal(name: str) -> str:
    return name.replace("_", "-")


def name_of(word: str) -> str:
    """The name of the flag that a word begins with (`--max_pods=5`: max-pods); "" for any other word."""
    return _normal(word.removeprefix("--").partition("=")[0]) if word.startswith("--") else ""


def find(words: Sequence[Mapped], name: str, *, switch: bool = False) -> list[Flag]:
    """Every occurrence of a flag on a command line, `--name=value` and `--name value`; nothing after a bare `--` counts.

    `switch`: a boolean flag, which never takes the next word (pflag, NoOptDefVal) and means true without a value.
    """
    found = []
    index = 0
    while index < len(words):
        word = words[index]
        text = word.string
        if text == "--":
            break
        key, equals, _ = text.removeprefix("--").partition("=")
        if text.startswith("--") and _normal(key) == name:
            if equals:
                found.append(Flag((word,), word.slice(word.text.index(b"=") + 1, len(word.text))))
            elif switch or index + 1 == len(words):
                found.append(Flag((word,), None))
            else:
                index += 1
                found.append(Flag((word, words[index]), words[index]))
        index += 1
    return found


def gate_flags(words: Sequence[Mapped]) -> list[Flag]:
    """Every --feature-gates of a command line. Raises FormatError if the component would refuse it."""
    found = find(words, FEATURE_GATES)
    if len({item.prefix for flag in found for item in flag.items}) > 1:
        raise FormatError(f"gates with and without `{KUBE}` are mixed", way_out="write all names with it, or all without it")
    return found


# Many nodes run the same command line, and each is asked for several flags.
@lru_cache(_REMEMBERED)
def _mapped(argv: tuple[str, ...]) -> tuple[Mapped, ...]:
    return tuple(Mapped.of(word.encode("utf-8", "surrogateescape")) for word in argv)


def effective_gates(argv: Sequence[str]) -> dict[str, bool]:
    """The gates that a command line sets: every list counts; if a gate is set more than once, the last value counts."""
    return {item.name: item.value for flag in gate_flags(_mapped(tuple(argv))) for item in flag.items}


def flag_values(argv: Sequence[str], name: str, *, switch: bool = False) -> list[str]:
    """All values of a flag in order, in both forms. `switch`: a boolean flag, which is "true" without a value."""
    return list(_values(tuple(argv), name, switch))


@lru_cache(_REMEMBERED)
def _values(argv: tuple[str, ...], name: str, switch: bool) -> tuple[str, ...]:
    found = find(_mapped(argv), name, switch=switch)
    if switch:
        return tuple(flag.value.string if flag.value else "true" for flag in found)
    return tuple(flag.value.string for flag in found if flag.value)


def last_flag(argv: Sequence[str], name: str, *, switch: bool = False) -> str | None:
    """The effective value of a flag, None if it is not set. `switch` as for `flag_values`."""
    values = flag_values(argv, name, switch=switch)
    return values[-1] if values else None


def without(argv: Sequence[str], name: str, *, switch: bool = False) -> list[str]:
    """A command line without one flag."""
    mapped = _mapped(tuple(argv))
    gone = {id(word) for flag in find(mapped, name, switch=switch) for word in flag.words}
    return [word.string for word in mapped if id(word) not in gone]


def taken(argv: Sequence[str], switches: Set[str]) -> list[tuple[str, str | None]]:
    """The flags without `=` that take the next word, whatever it is, as their value: each with that word, None if it is the last one.
    `switches`: the names of boolean flags, which take none (pflag, parseLongArg and parseSingleShortArg)."""
    found: list[tuple[str, str | None]] = []
    words = iter(argv[1:])
    for word in words:
        if word == "--":
            break
        long = word.startswith("--") and "=" not in word and _normal(word.removeprefix("--")) not in switches
        if long or word == "-v":
            found.append((word, next(words, None)))
    return found


def waiting(argv: Sequence[str], switches: Set[str]) -> str | None:
    """The flag at the end of a command line that has no value yet, None if there is none. `switches` as in `taken`."""
    return next((flag for flag, value in taken(argv, switches) if value is None), None)


def swallowed(before: Sequence[str], after: Sequence[str], switches: Set[str] = frozenset()) -> tuple[str, str] | None:
    """A flag after which an edit put a new one that becomes its value: that flag, and the new one. `switches` as in `taken`."""
    old = set(taken(before, switches))
    new = (pair for pair in taken(after, switches) if pair not in old)
    return next(((flag, value) for flag, value in new if value is not None and value.startswith("-")), None)


def without_gates(argv: Sequence[str]) -> list[str]:
    """A command line without its --feature-gates."""
    return without(argv, FEATURE_GATES)


def written(gates: Mapping[str, bool]) -> str:
    """A gate list as the flag's value."""
    return ",".join(f"{name}={'true' if value else 'false'}" for name, value in gates.items())


def changed(gates: Mapping[str, bool | None]) -> str:
    """Changes of gates, for people; one that is taken out is `absent`."""
    return ", ".join(f"{name}={'absent' if value is None else str(value).lower()}" for name, value in gates.items())


def check_end(argv: Sequence[str]) -> None:
    """Refuse if a new flag at the end would not be read as one. Raises FormatError."""
    if "--" in argv:
        raise FormatError("a bare `--` ends the flags before the place of a new flag", value=" ".join(argv), way_out="remove it")
    if argv and posixpath.basename(argv[0]) in _SHELLS:
        raise FormatError(
            "a shell starts the component, and a flag at the end would be the shell's",
            value=" ".join(argv),
            way_out="start the component without a shell",
        )


def check_inside(words: Sequence[Mapped], name: str) -> None:
    """Refuse a flag inside a longer word, where an edit would not find it. Raises FormatError."""
    # As in `sh -c "exec kubelet --name=value"`.
    pattern = re.compile(rf"\S.*[\s;&|'\"(]--{re.escape(name)}(?:[=\s]|\Z)", re.DOTALL)
    for word in words:
        if pattern.search(_normal(word.string)):
            raise FormatError(f"--{name} is written inside a longer word", value=word.string, way_out="write it as a separate word")


def with_gates(values: Sequence[str], changes: GateChanges) -> tuple[str, ...]:
    """The values of --feature-gates, in their order, after which they set the desired gates; () if the flag goes.

    A gate that is there is changed where it takes effect, at its last place. A new one goes to the end of the last list with gates. A
    removed one is removed from every list; a list that becomes empty goes. Raises FormatError for a list that the component would refuse.
    """
    items = [flag.items for flag in gate_flags(_mapped(tuple(f"--{FEATURE_GATES}={value}" for value in values)))]
    prefix = next((item.prefix for found in items for item in found), "")
    last = {item.name: item for found in items for item in found}
    new = {prefix + name: value for name, value in changes.items() if value is not None and name not in last}
    home = max((number for number, found in enumerate(items) if found), default=len(values) - 1)

    def changed(part: str, item: GateItem) -> str | None:
        wanted = changes.get(item.name, item.value)
        if wanted is None or wanted == item.value or item is not last[item.name]:
            return None if wanted is None else part
        return written({part.partition("=")[0]: wanted})

    made = []
    for number, (value, found) in enumerate(zip(values, items, strict=True)):
        left = iter(found)
        parts = [one for part in value.split(",") if (one := changed(part, next(left)) if part else part) is not None]
        if number == home and new:
            end = max((place for place, part in enumerate(parts, 1) if part), default=0)
            parts = [*parts[:end], written(new), *(parts[end:] if end else ())]
            new = {}
        text = ",".join(parts)
        if any(parts) or not found:
            # A place may have no room for blanks.
            made.append(text if text == value else re.sub(r"\s", "", text))
    return (*made, *([written(new)] if new else ()))


def gates_of(argv: Sequence[str], changes: GateChanges) -> FlagValues:
    """The values of --feature-gates after which a command line sets the desired gates (`with_gates`)."""
    words = _mapped(tuple(argv))
    check_inside(words, FEATURE_GATES)
    gate_flags(words)
    return with_gates(flag_values(argv, FEATURE_GATES), changes) or None


def edit(
    words: Sequence[Mapped],
    name: str,
    values: FlagValues,
    remove: Callable[[tuple[Mapped, ...]], list[Splice]],
    insert: Callable[[str], list[Splice]],
    *,
    switch: bool = False,
) -> list[Splice]:
    """The splices after which a command line gives a flag `values`, or (None) does not have it; none if it does already.

    The last value is written at the flag's last place that stays, and places without a value are removed: of most flags the last one
    counts, but maps and lists add up (k8s.io/component-base/cli/flag, map_string_string.go; pflag string_slice.go). `remove` returns the
    splices that remove whole words, `insert` those that add a new flag. Raises FormatError for a value that cannot be written literally
    in every place.
    """
    check_inside(words, name)
    found, wanted = places(find(words, name, switch=switch)), values or ()
    if odd := [value for value in wanted if not _WRITABLE.fullmatch(value)]:
        raise FormatError(
            f"a value of --{name} has a character that daytwo does not write on a command line", value=odd[0], way_out="set it by hand"
        )
    stay = staying(found, wanted)
    splices = [splice for number, flag in enumerate(found) if number not in stay for splice in remove(flag.words)]
    for number, value in zip(stay, wanted, strict=False):
        splices += [] if _has(found[number], value, switch) else [_put(found[number], name, value)]
    return splices + [splice for value in wanted[len(found) :] for splice in insert(f"--{name}={value}")]


def staying(found: Sequence[Flag], wanted: Sequence[str]) -> list[int]:
    """The numbers of the places that stay if a flag gets the wanted values: the last ones, but first those go whose value is not wanted."""
    there = [flag.value is not None and flag.value.string in wanted for flag in found]
    return sorted(sorted(range(len(found)), key=there.__getitem__)[max(0, len(found) - len(wanted)) :])


def places(found: Sequence[Flag]) -> list[Flag]:
    """The flags with different places, in order: a variable can be used twice."""
    last = {tuple((word.source, word.extent) for word in flag.words): flag for flag in found}
    return [flag for flag in found if any(flag is other for other in last.values())]


def _has(flag: Flag, value: str, switch: bool) -> bool:
    return same_value("true" if flag.value is None else flag.value.string, value, switch=switch)


def same_value(one: str, other: str, *, switch: bool) -> bool:
    """Equal values of a flag; those of a switch as booleans. Raises FormatError for a switch with anything else."""
    return parse_bool(one) == parse_bool(other) if switch else one == other


def _put(flag: Flag, name: str, value: str) -> Splice:
    """Write another value: in its place or, if that has quotes or escapes, instead of the whole last word."""
    word = flag.words[-1]
    if flag.value is None:
        end = word.spans[-1][1]
        return Splice(end, end, f"={value}".encode(), word.source)
    start, end = _extent(flag.value)
    if end - start == len(flag.value.text) and (flag.value.text or not _quoted_alone(flag)):
        return Splice(start, end, value.encode(), word.source)
    return Splice(*word.extent, (value if len(flag.words) == 2 else f"--{name}={value}").encode(), word.source)


def _quoted_alone(flag: Flag) -> bool:
    """True for an empty value with its own quotes: `--name ""`, `--name=''`; the place inside them is not known."""
    word = flag.words[-1]
    if not word.spans:
        return word.extent[0] < word.extent[1]
    return word.extent[1] - word.spans[-1][1] > word.spans[0][0] - word.extent[0]


@dataclass
class _Parsed:
    """A parsed command line: the program, the values of each flag in order ("true" without one), and the other words."""

    program: str
    values: dict[str, list[str]]
    others: list[str]


def _parsed(argv: Sequence[str], kinds: Mapping[str, str]) -> _Parsed:
    """`-v` is `v`. A word after a flag without `=` is its value, except after a switch, or if the word looks like a flag itself."""
    parsed = _Parsed(argv[0] if argv else "", {}, [])
    words = list(argv[1:])
    while words:
        word = words.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        name = _normal(name)
        if word == "--":
            parsed.others += words
            break
        if not word.startswith("-") or not name:
            parsed.others.append(word)
            continue
        if not equals:
            takes = kinds.get(name) != "bool" and words and not words[0].startswith("-")
            value = words.pop(0) if takes else "true"
        parsed.values.setdefault(name, []).append(value)
    return parsed


def _meant(name: str, values: Sequence[str], kinds: Mapping[str, str]) -> object:
    """The result of all values of a flag: lists and maps add up, of others the last one counts; of an unknown flag each is kept."""
    try:
        if name == FEATURE_GATES:
            return dict(item for value in values for item in parse_gates(value))
        if kinds.get(name) == "bool":
            return parse_bool(values[-1])
    except FormatError:
        return list(values)
    items = [item.strip() for value in values for item in value.split(",") if item.strip()]
    if kinds.get(name) == "map":
        return dict(re.split(r"(?<=[=<])", item, maxsplit=1) if re.search("[=<]", item) else [item, ""] for item in items)
    return items if kinds.get(name) == "list" else values[-1] if name in kinds else list(values)


@dataclass(frozen=True)
class FlagDifference:
    """A flag that differs between two command lines, with its values in each: () if it is not there. `name` is "" for the program and
    for the words that are no flag."""

    name: str
    now: tuple[str, ...]
    then: tuple[str, ...]
    what: str = ""

    def __str__(self) -> str:
        one, other = (" ".join(self.words(values)) or (f"no --{self.name}" if self.name else "(none)") for values in (self.then, self.now))
        return f"{self.what}{one} (now {other})"

    def words(self, values: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"--{self.name}={value}" if self.name else value for value in values)


def differences(running: Sequence[str], planned: Sequence[str], kinds: Mapping[str, str] | None = None) -> list[FlagDifference]:
    """How the arguments `planned` differ from `running`, flag by flag: `--v=2 (now --v=9)`; [] if both mean the same, in whatever order
    and spelling.

    `kinds`: the kind of each flag by its name (bool, list, map, or another), as far as known.
    """
    known = kinds or {}
    now, then = _parsed(running, known), _parsed(planned, known)
    found = []
    if now.program != then.program and (posixpath.basename(now.program) != posixpath.basename(then.program) or "/" in now.program):
        found.append(FlagDifference("", (now.program,), (then.program,), "the program "))
    for name in [*then.values, *(name for name in now.values if name not in then.values)]:
        one, other = now.values.get(name, ()), then.values.get(name, ())
        if not one or not other or _meant(name, one, known) != _meant(name, other, known):
            found.append(FlagDifference(name, tuple(one), tuple(other)))
    if now.others != then.others:
        found.append(FlagDifference("", tuple(now.others), tuple(then.others), "the words "))
    return found


def set_to(before: Sequence[str], after: Sequence[str], name: str, values: FlagValues, *, switch: bool = False) -> bool:
    """True if an edit had the desired result: the flag has the values, and no other word changed. A place that is used twice gives its
    value twice."""
    found = flag_values(after, name, switch=switch)
    right = [*dict.fromkeys(found)] == [*dict.fromkeys(values or ())]
    if values and switch:
        right = found != [] and all(same_value(one, values[0], switch=True) for one in found)
    return right and without(before, name, switch=switch) == without(after, name, switch=switch)


def _extent(part: Mapped) -> tuple[int, int]:
    return (part.spans[0][0], part.spans[-1][1]) if part.spans else part.extent
