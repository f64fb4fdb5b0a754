"""Connections as they are under pyinfra's own command, which lets gevent patch what waits: the tests of these modules pass then too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

UNIT = Path(__file__).resolve().parents[1]
MODULES = ("api/test_client.py", "api/test_etcd.py", "proof/test_kept.py")


def test_all_of_it_under_gevent_as_pyinfra_patches_it() -> None:
    code = "from gevent import monkey; monkey.patch_all(); import pytest, sys; sys.exit(pytest.main(sys.argv[1:]))"
    command = [sys.executable, "-W", "ignore", "-c", code, *(str(UNIT / name) for name in MODULES), "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
