"""Nodes by gates and settings: identical nodes share a column; the rows are what a source sets or what differs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from roles.audit.drift import ITS_OWN
from roles.audit.model import ComponentReport, NodeReport, Report, SourcedSetting
from roles.engine.kubelet import schema
from roles.engine.kubelet.values import same_setting, shown
from roles.engine.node import minor_of

NOT_SET, UNKNOWN = "not set", "unknown"
# Values that set nothing in a file; and values that kubelets read as not set if their default differs.
_NOTHING = ("", "{}", "[]", "(not set)", '""', "null")
_ZERO = ("0", "0s")


@dataclass(frozen=True)
class Group:
    """Nodes with the same kind, versions, sources and effective values. The first represents all of them."""

    nodes: tuple[NodeReport, ...]

    @property
    def first(self) -> NodeReport:
        return self.nodes[0]

    @property
    def title(self) -> str:
        names = [node.name for node in self.nodes]
        return names[0] if len(names) == 1 else f"{names[0]} + {len(names) - 1}"

    @property
    def about(self) -> str:
        return " ".join(filter(None, (self.first.kind, self.first.version)))


@dataclass(frozen=True)
class Cell:
    """One value. `source`: file, drop-in, flag, manifest, or "default" if nothing sets it. `place`: where it is set; `unlike`: it
    differs from the most common value; `pending`: what the sources say, if the process has another value; `as_default`: it is set to
    its default."""

    value: str
    source: str = "default"
    place: str = ""
    unlike: bool = False
    pending: str = ""
    as_default: bool = False


@dataclass(frozen=True)
class MatrixRow:
    """One gate of a component, or one field. A cell is None if a group does not have the component."""

    section: str
    name: str
    cells: tuple[Cell | None, ...]

    @property
    def differs(self) -> bool:
        return len({cell.value for cell in self.cells if cell is not None}) > 1

    @property
    def is_set(self) -> bool:
        """A source sets it to a value that is not the default."""
        return any(cell is not None and cell.source != "default" and not cell.as_default for cell in self.cells)


@dataclass(frozen=True)
class Matrix:
    """`alike`: by section, names and values that are at their default and the same on all nodes; `rows`: the others."""

    groups: tuple[Group, ...]
    rows: tuple[MatrixRow, ...]
    alike: Mapping[str, tuple[tuple[str, str], ...]]


def matrix(report: Report) -> Matrix:
    """The matrix of the nodes whose kubelet could be read."""
    groups = group(node for node in report.nodes if node.components)
    rows: list[MatrixRow] = []
    alike: dict[str, list[tuple[str, str]]] = {}
    for section, names, cell in _sections(groups):
        for name in names:
            cells = [cell(group_.first, name) for group_ in groups]
            values = [one.value for one in cells if one is not None]
            row = MatrixRow(section, name, _marked(cells))
            if row.is_set or row.differs:
                rows.append(row)
            elif values and values[0] not in (NOT_SET, UNKNOWN):
                alike.setdefault(section, []).append((name, values[0]))
    return Matrix(tuple(groups), tuple(rows), {section: tuple(found) for section, found in alike.items()})


def group(nodes: Iterable[NodeReport]) -> tuple[Group, ...]:
    """Groups of identical nodes, in the order of the first node of each."""
    found: dict[object, list[NodeReport]] = {}
    for node in nodes:
        found.setdefault(_signature(node), []).append(node)
    return tuple(Group(tuple(listed)) for listed in found.values())


def _signature(node: NodeReport) -> object:
    components = tuple((one.name, one.version, frozenset((one.effective or {}).items()), one.effective is None) for one in node.components)
    places = frozenset(
        (one.component, one.name, one.value, one.source, one.counts) for one in (*node.gates, *node.settings) if _shared(one)
    )
    fields = frozenset((name, value) for name, value in (node.effective or {}).items() if name.partition(".")[0] not in ITS_OWN)
    return node.groups, node.kind, components, places, fields, node.effective is None


def _shared(place: SourcedSetting) -> bool:
    return place.name.partition(".")[0] not in ITS_OWN


_Cell = Callable[[NodeReport, str], Cell | None]


def _sections(groups: Sequence[Group]) -> Iterable[tuple[str, list[str], _Cell]]:
    """Title, names, and the function that makes a cell; kubelets first, since all nodes have one."""
    components = list(dict.fromkeys(one.name for each in groups for one in each.first.components))
    for component in components:
        names = {place.name for each in groups for place in each.first.gates if place.component == component}
        names |= {name for each in groups for name in (_component(each.first, component) or _NONE).effective or {}}
        yield f"{component} gates", sorted(names), lambda node, name, component=component: _gate(node, component, name)  # type: ignore[misc]
    fields = {place.name for each in groups for place in each.first.settings if place.value}
    fields |= {name for each in groups for name in each.first.effective or {}}
    yield "kubelet settings", sorted(fields, key=str.lower), _field


_NONE = ComponentReport(name="", version=None, pid=0)


def _component(node: NodeReport, name: str) -> ComponentReport | None:
    return next((one for one in node.components if one.name == name), None)


def _gate(node: NodeReport, component: str, name: str) -> Cell | None:
    found = _component(node, component)
    if found is None:
        return None
    place = next((one for one in node.gates if (one.component, one.name, one.counts) == (component, name, True)), None)
    running = None if found.effective is None or name not in found.effective else ("true" if found.effective[name] else "false")
    return _cell(place, running, known=found.effective is not None)


def _field(node: NodeReport, name: str) -> Cell | None:
    place = next((one for one in node.settings if one.name == name and one.counts), None)
    running = (node.effective or {}).get(name)
    if place is not None and (place.value in _NOTHING or (place.value in _ZERO and running not in (None, place.value))):
        place = None  # kubeadm writes these values, and the kubelet uses its default
    cell = _cell(place, running, known=node.effective is not None)
    default = _default(node, name)
    return replace(cell, as_default=default is not None and same_setting(_plain(default), _plain(cell.value)))


def _default(node: NodeReport, name: str) -> str | None:
    """The default of a kubelet of this version, as text; None if it is not a constant."""
    minor = minor_of(node.version)
    if minor is None or not schema.OLDEST <= minor <= schema.NEWEST:
        return None
    known = schema.fields(minor)
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        owner = known.get(".".join(parts[:length]))
        if owner is not None:
            rest = ".".join(parts[length:])
            found = owner.default.get(rest) if rest and isinstance(owner.default, Mapping) else None if rest else owner.default
            zero = {"bool": "false", "int32": "0", "int64": "0", "duration": "0s", "duration_or_int": "0s"}.get(owner.kind)
            return shown(found) if found is not None else zero if not rest else None
    return None


def _cell(place: SourcedSetting | None, running: str | None, known: bool) -> Cell:
    said = place.value if place else None
    value = running if running is not None else said if said is not None else NOT_SET if known else UNKNOWN
    if place is None:
        return Cell(value)
    zero = running is None and known
    differs = running is not None and not same_setting(_plain(said), _plain(running))
    return Cell(value, place.source, place.place, pending=said or "" if differs and not zero else "")


def _plain(text: str | None) -> object:
    """The booleans `true` and `false`; other text unchanged."""
    return {"true": True, "false": False}.get(text or "", text)


def _marked(cells: Sequence[Cell | None]) -> tuple[Cell | None, ...]:
    """The cells; those that differ from the most common value are marked."""
    values = [cell.value for cell in cells if cell is not None]
    usual = max(dict.fromkeys(values), key=values.count) if values else ""
    if len(set(values)) < 2:
        return tuple(cells)
    return tuple(cell if cell is None or cell.value == usual else replace(cell, unlike=True) for cell in cells)
