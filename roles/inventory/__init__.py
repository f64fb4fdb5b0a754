"""The inventory's data as a whole: every key that any deploy reads, and the refusal of one that none does."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from pyinfra.api.deploy import deploy

from roles.change import Refusal
from roles.data import names
from roles.inventory import registry
from roles.inventory.strangers import WAY_OUT, unknown
from roles.rollout import Fleet, Remote
from roles.rollout import remote as bridge


@deploy("Data keys")  # type: ignore[untyped-decorator]
def known_keys(of_cluster: bool = False) -> None:
    """Every deploy begins with this: raises DeployError, before a command runs on any host, where a host's data has a key that no deploy
    reads. Hosts of the run, and the control plane, which is looked at in any case; `of_cluster`: all hosts, whose data say what the
    cluster is to have."""
    bridge.once("data keys", partial(_check, of_cluster))


def _check(of_cluster: bool, fleet: Fleet) -> None:
    remotes = [remote for remote in fleet.inventory if of_cluster or remote not in fleet.others or remote.is_control_plane]
    bridge.stop([*refusals(remotes, bridge.pyinfra_keys())])


def refusals(remotes: Iterable[Remote], pyinfra: frozenset[str]) -> list[Refusal]:
    """One for each unknown key and place it stands in, with the hosts that have it from there."""
    found: dict[tuple[str, str], list[str]] = {}
    problems: list[Refusal] = []
    for remote in remotes:
        try:
            own = names(remote.data("own_keys")) or ()
        except ValueError as error:
            problems.append(Refusal(remote.name, f"own_keys: {error}"))
            continue
        for key, why in _unknown(remote.data_keys, pyinfra, own).items():
            found.setdefault((remote.data_origin(key), why), []).append(remote.name)
    return problems + [Refusal(_hosts(hosts), f"{where}: {why}", WAY_OUT) for (where, why), hosts in found.items()]


def _unknown(keys: set[str], pyinfra: frozenset[str], own: tuple[str, ...]) -> dict[str, str]:
    # Only the models have the say; but where the page that is made from them knows all keys, they need not be imported.
    return unknown(keys, registry.written_names(), pyinfra, own) and unknown(keys, registry.names(), pyinfra, own)


def _hosts(hosts: list[str]) -> str:
    return ", ".join(hosts) if len(hosts) <= 3 else f"{hosts[0]} and {len(hosts) - 1} more"


__all__ = ["known_keys", "refusals"]
