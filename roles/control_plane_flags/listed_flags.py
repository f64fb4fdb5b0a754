"""The flags that a component's own binary lists (--help), with their types. Pure.

The list has one line for each flag (k8s.io/component-base/cli/flag, PrintSections); deprecated ones are not in it (pflag, MarkDeprecated).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass

_LINE = re.compile(r"^ +(?:-\w, )?--([a-z][\w-]*)(?: (\S+))?  +(.*)$", re.MULTILINE)
# Types whose values add up if the flag is given several times; of all others the last one counts.
_SEVERAL = re.compile(r"strings|stringSlice|stringArray|stringToString|mapString\w+|colonSeparated\w+|int32Slice|namedCertKey")
_DEPRECATED = re.compile(r"\bDEPRECATED\b[^.]*")
_ALIKE = 0.7


@dataclass(frozen=True)
class ListedFlag:
    """`kind`: its type, bool if it has none. `deprecated`: what the list says of that, or ""."""

    name: str
    kind: str
    deprecated: str = ""

    @property
    def several(self) -> bool:
        """Whether several values add up."""
        return _SEVERAL.fullmatch(self.kind) is not None

    @property
    def commas(self) -> bool:
        """Whether several values mean the same as one with commas."""
        return self.kind in ("strings", "stringSlice")


def parse_flags(text: str) -> dict[str, ListedFlag]:
    """From the lines about flags in a --help, by name."""
    found = {}
    for name, kind, description in _LINE.findall(text):
        deprecated = _DEPRECATED.search(description)
        found[name] = ListedFlag(name, kind or "bool", deprecated.group(0).strip() if deprecated else "")
    return found


def alike(name: str, listed: Mapping[str, ListedFlag]) -> list[str]:
    """Up to two flags with a similar name."""
    return difflib.get_close_matches(name, sorted(listed), 2, _ALIKE)
