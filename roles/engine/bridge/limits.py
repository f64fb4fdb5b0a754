"""What the operating system lets one process have."""

from __future__ import annotations

import resource

# Each host keeps its connection for the whole run: enough for any number of hosts that one machine can ask.
_FILES = 65536


def guard() -> None:
    """Raise the soft limit of open files: shells often start with 1024, and then host 1000 could not be connected to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
