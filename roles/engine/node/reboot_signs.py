"""How a node says that it needs a reboot: each distribution family has a sign of its own. Pure.

A newer kernel is compared for every family (kernels.py). The signs here are also about libraries and services that only a boot replaces.
Only an answer means "no": that a file is missing is one where a package that would write it is installed, else it is not known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roles.engine.folding import shortened


@dataclass(frozen=True)
class Sign:
    """`key`: its name in the node's answer (templates/reboot_signs.sh.j2); `shown`: what asks for the reboot, for people; `families`: whose
    it is, in the words of ID and ID_LIKE (os-release(5)). `source`: where that is written."""

    key: str
    shown: str
    families: tuple[str, ...]
    source: str


#: docs/disruption.md has them for operators.
SIGNS: tuple[Sign, ...] = (
    # Their maintainer scripts call update-notifier-common's program if it is there; unattended-upgrades has a hook of its own for kernels.
    Sign("reboot-required", "/run/reboot-required", ("debian", "ubuntu"), "update-notifier-common, unattended-upgrades"),
    Sign("reboot-needed", "/run/reboot-needed", ("suse", "opensuse", "sles"), "libzypp, zypp-boot-plugin(8), transactional-update(8)"),
    Sign("zypper", "`zypper needs-rebooting`", ("suse", "opensuse", "sles"), "zypper(8): 102"),
    Sign(
        "needs-restarting",
        "`needs-restarting -r`",
        ("rhel", "centos", "fedora", "amzn", "ol"),
        "needs-restarting(1) of yum-utils, dnf4-needs-restarting(8), dnf5-needs-restarting(8): 1",
    ),
    Sign("ostree", "a staged deployment of ostree", ("fedora", "rhel"), "ostree-admin-deploy(1), rpm-ostree(1), bootc(8)"),
    Sign("nixos", "another system than the booted one (/run/current-system)", ("nixos",), "nixos-rebuild(8): kernel, initrd, modules"),
    Sign(
        "modules-gone", "no modules of the running kernel any more (/lib/modules)", ("arch", "alpine"), "pacman, apk: one kernel at a time"
    ),
    Sign("update-engine", "`update_engine_client -status`", ("flatcar", "coreos"), "UPDATE_STATUS_UPDATED_NEED_REBOOT"),
)


@dataclass(frozen=True)
class Need:
    """What a node says: the signs that ask for a reboot, and those that deny it; `family` for people."""

    asking: tuple[Sign, ...] = ()
    denying: tuple[Sign, ...] = ()
    family: str = ""

    @property
    def known(self) -> bool:
        """False if nothing on the node could say that libraries need a reboot."""
        return bool(self.asking or self.denying)

    def reasons(self, packages: Sequence[str], newer: str, running: str) -> list[str]:
        """Why it needs a reboot. `packages` asked for it; `newer`: an installed kernel that is newer than the `running` one, or ""."""
        found = []
        for sign in self.asking:
            by = f" ({shortened(packages)})" if packages and sign.key == "reboot-required" else ""
            found.append(f"it has {sign.shown}{by}" if sign.shown.startswith(("/", "a ", "another ", "no ")) else f"{sign.shown} says so")
        return [*found, f"kernel {newer} is installed, {running} runs"] if newer else found

    @property
    def why_not(self) -> str:
        """Why it is not rebooted for what is installed."""
        if not self.known:
            return f"whether libraries need a reboot is not known on this node ({self.family or 'unknown'})"
        files = [one.shown for one in self.denying if one.shown.startswith("/")]
        asked = [one.shown for one in self.denying if not one.shown.startswith("/")]
        return ", ".join([*(f"no {one}" for one in files), *(f"no need by {one}" for one in asked)])


def judge_signs(said: Mapping[str, bool], family: str) -> Need:
    """`said`: what the node answers, by key: True asks for a reboot, False denies it, missing: it cannot say. `family` as in BootFacts."""
    words = [word for word in re.split(r"[\s\"']+", family.lower()) if word]
    asking = tuple(sign for sign in SIGNS if said.get(sign.key))
    return Need(asking, tuple(sign for sign in SIGNS if said.get(sign.key) is False), words[0] if words else "")
