"""The lab of this checkout (make lab), or the one that LAB names: its nodes, read from .lab/ssh_config."""

import os
import re
from pathlib import Path

_CONFIG = Path(__file__).resolve().parents[1] / ".lab" / os.environ.get("LAB", "") / "ssh_config"
if not _CONFIG.exists():
    raise SystemExit(f"{_CONFIG} is missing: the lab is not up; run `make lab` first")

_text = _CONFIG.read_text()
_access = {
    "ssh_config_file": str(_CONFIG),
    "ssh_known_hosts_file": re.findall(r"UserKnownHostsFile (\S+)", _text)[0],
    "ssh_strict_host_key_checking": "yes",
}
_names = re.findall(r"^Host (\S+)$", _text, re.MULTILINE)

control_plane = [(name, _access) for name in _names if name.startswith("cp")]
workers = [(name, _access) for name in _names if not name.startswith("cp")]
