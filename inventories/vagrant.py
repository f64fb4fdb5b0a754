"""The virtual machines of tests/vagrant (make vagrant-up), found by pyinfra's @vagrant connector.

Emulated machines are many times slower: `patience` is the factor.
"""

import json
import os
from pathlib import Path

from pyinfra.connectors.vagrant import VagrantInventoryConnector

_FOLDER = Path(__file__).resolve().parents[1] / "tests" / "vagrant"
_STATE = _FOLDER / ".vagrant" / "daytwo.json"
if not _STATE.exists():
    raise SystemExit(f"{_STATE} is missing: the machines are not up; run `make vagrant-up` first")

os.environ["VAGRANT_CWD"] = str(_FOLDER)
_patience = json.loads(_STATE.read_text())["patience"]
_data = {
    "_sudo": True,
    "ssh_known_hosts_file": str(_FOLDER / ".vagrant" / "known_hosts"),
    "ssh_strict_host_key_checking": "accept-new",
    "ssh_paramiko_connect_kwargs": {"banner_timeout": 15 * _patience, "auth_timeout": 30 * _patience},
    "patience": _patience,
}
_found = {name.removeprefix("@vagrant/"): data for name, data, _ in VagrantInventoryConnector.make_names_data()}

control_plane = [(name, {**data, **_data}) for name, data in sorted(_found.items()) if name.startswith("cp")]
workers = [(name, {**data, **_data}) for name, data in sorted(_found.items()) if not name.startswith("cp")]
