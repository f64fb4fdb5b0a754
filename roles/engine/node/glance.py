"""What deploys/status.py shows of a node besides its processes and files: whether it needs a reboot, its newest change, and who holds the
lock of the cluster (templates/glance.sh.j2). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from roles.engine.bounds import digits
from roles.engine.node.kernels import judge_kernels
from roles.engine.node.reboot_signs import judge_signs
from roles.engine.scripts import decoded_text, properties

#: Records that occur once, and those that occur several times.
ONCE, SEVERAL = ("kernel", "family", "newest", "lock"), ("installed", "sign", "package")


@dataclass(frozen=True)
class NewestChange:
    """`at`: when its state was last written, in seconds of the node's clock; None if it has no state. `values`: key=value of its state and
    of its holder (templates/change.sh.j2)."""

    name: str
    at: int | None
    values: Mapping[str, str]


@dataclass(frozen=True)
class Glance:
    """`family`, `installed`, `signs` and `packages` as in roles/reboot/facts.py; `lock`: what the lock of the cluster says on this host,
    None if nobody holds it here."""

    kernel: str = ""
    family: str = ""
    installed: tuple[str, ...] = ()
    signs: Mapping[str, bool] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    newest: NewestChange | None = None
    lock: Mapping[str, str] | None = None

    def reboot(self) -> tuple[bool | None, str]:
        """Whether the node needs a reboot, None if nothing on it can say that; and why."""
        need, newer = judge_signs(self.signs, self.family), judge_kernels(self.kernel, self.installed, self.family).newest
        why = need.reasons(self.packages, newer, self.kernel)
        return (True, "; ".join(why)) if why else (False if need.known else None, need.why_not)


def parse_glance(once: Mapping[str, Sequence[str]], several: Mapping[str, Sequence[Sequence[str]]]) -> Glance | None:
    """The fields of the records ONCE and SEVERAL, by their names; None if the node was not asked for them. Raises ValueError, IndexError
    and binascii.Error for what is malformed."""
    if "kernel" not in once:
        return None
    return Glance(
        decoded_text(once["kernel"][0]).strip(),
        decoded_text(once["family"][0]) if "family" in once else "",
        tuple(decoded_text(release) for release, _ in several.get("installed", ())),
        {name: said == "yes" for name, said in several.get("sign", ())},
        tuple(decoded_text(fields[0]) for fields in several.get("package", ())),
        _newest(*once["newest"]) if "newest" in once else None,
        properties(decoded_text(once["lock"][0])) if "lock" in once else None,
    )


def _newest(name: str, at: str, values: str) -> NewestChange:
    return NewestChange(decoded_text(name), digits(at), properties(decoded_text(values)))
