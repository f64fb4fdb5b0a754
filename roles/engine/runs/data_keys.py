"""Refuses data keys that no deploy reads, and those of --data that this deploy does not read: such a key would silently change nothing."""

from __future__ import annotations

from collections.abc import Iterable

from roles.engine.bridge import Fleet, Remote, pyinfra_keys
from roles.engine.folding import shortened
from roles.engine.inputs import names, registry
from roles.engine.inputs.unknown_keys import WAY_OUT, as_pair, chose_before, not_read, unknown
from roles.engine.transaction import Refusal


def unknown_key_refusals(fleet: Fleet, of_cluster: bool, deploy: str) -> list[Refusal]:
    """For the hosts of the run and the control plane, which is always read; `of_cluster`: for all hosts, since their data together are the
    desired state of the cluster."""
    remotes = [remote for remote in fleet.inventory if of_cluster or remote not in fleet.others or remote.is_control_plane]
    return refused_keys(remotes, pyinfra_keys(), registry.main_key(deploy))


def unread_keys(fleet: Fleet, deploy: str) -> list[str]:
    """Why this deploy does not take keys of --data that others read; [] if it reads them all. An inventory has the keys of all deploys."""
    every, given = registry.EVERY_DEPLOY, {key: fleet.inventory[0].data(key) for key in fleet.given}
    if not not_read(given, deploy, registry.written_readers(), every):
        return []
    return not_read(given, deploy, registry.readers(), every)


def wider_than_asked(fleet: Fleet, deploy: str) -> list[Refusal]:
    """One refusal for each place of the inventory that chooses a part of this deploy's work by an old name of a key: unread, it would make
    the run do all of it."""
    found: dict[tuple[str, str], list[str]] = {}
    for key, now in chose_before(deploy).items():
        for remote in fleet.inventory if key not in fleet.given else ():
            if key in remote.data_keys:
                why = f"{remote.data_origin(key)}: {key}: {deploy}.py does not read it: there its name is {now}"
                found.setdefault((why, key), []).append(remote.name)
    return [
        Refusal(_hosts(hosts), why, f"rename it; one that chooses hosts for other deploys belongs into their --data {key}=...")
        for (why, key), hosts in found.items()
    ]


def refused_keys(remotes: Iterable[Remote], pyinfra: frozenset[str], main: str = "") -> list[Refusal]:
    """One refusal for each unknown key and place of definition, with the hosts that get the key from there. `main`: the key that the deploy
    is about."""
    pairs = main if registry.takes_pairs(main) else ""
    found: dict[tuple[str, str], list[str]] = {}
    problems: list[Refusal] = []
    for remote in remotes:
        try:
            own = names(remote.data("own_keys")) or ()
        except ValueError as error:
            problems.append(Refusal(remote.name, f"own_keys: {error}"))
            continue
        for key, why in _unknown(remote.data_keys, pyinfra, own).items():
            if pairs and remote.data_origin(key) == "--data" and registry.allows(pairs, remote.data(key)):
                why = as_pair(key, remote.data(key), pairs, {*registry.names(), *pyinfra}) or why
            found.setdefault((remote.data_origin(key), why), []).append(remote.name)
    return problems + [Refusal(_hosts(hosts), f"{where}: {why}", WAY_OUT) for (where, why), hosts in found.items()]


def _unknown(keys: set[str], pyinfra: frozenset[str], own: tuple[str, ...]) -> dict[str, str]:
    # The models decide. Importing them is not necessary if the page generated from them has all keys.
    return unknown(keys, registry.written_names(), pyinfra, own) and unknown(keys, registry.names(), pyinfra, own)


def _hosts(hosts: list[str]) -> str:
    return shortened(hosts, 3 if len(hosts) <= 3 else 1)
