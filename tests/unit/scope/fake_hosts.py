"""An inventory of pyinfra's fake hosts, which connect and answer at once."""

from __future__ import annotations

HOSTS = """
_quick = {"fake_delay": 0, "fake_delay_jitter": 0}
control_plane = [("@fake/cp1", _quick)]
workers = [("@fake/w1", _quick), ("@fake/w2", _quick)]
empty = []
"""
