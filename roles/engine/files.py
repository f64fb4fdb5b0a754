"""Files on the operator's own machine: reports and pages."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

#: Only the operator's own user: records and samples show what runs where.
_FOLDER_MODE, FILE_MODE = 0o700, 0o600


def state_folder(*names: str) -> Path:
    """A folder below `daytwo` in the operator's state directory ($XDG_STATE_HOME, or ~/.local/state). It may not exist yet."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    return Path(state, "daytwo", *names)


def create_private(folder: Path) -> None:
    """Create a `state_folder`, for its owner alone whatever the umask is, and take the rights of others from what there is. Raises
    OSError."""
    folder.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
    root = state_folder()
    for one in (path for path in (folder, *folder.parents) if path == root or root in path.parents):
        found = one.stat()
        if found.st_uid == os.geteuid() and found.st_mode & 0o777 != _FOLDER_MODE:
            one.chmod(_FOLDER_MODE)


def keep_newest(folder: Path, pattern: str, most: int) -> None:
    """Remove the oldest files of a `state_folder`, by the time of their last change, so that `most` are left. What cannot be removed
    stays: another process may be faster."""
    found: list[tuple[float, Path]] = []
    for path in folder.glob(pattern):
        with suppress(OSError):
            found.append((path.stat().st_mtime, path))
    for _, path in sorted(found)[: max(len(found) - most, 0)]:
        with suppress(OSError):
            path.unlink()


def write_whole(path: Path, text: str, mode: int = 0o666) -> None:
    """Write a file completely or not at all, also if the machine loses power: no reader ever sees a part of it. Other users may write into
    the folder (/tmp), so the temporary file has an unpredictable name, and is never an existing file or link. The umask cuts `mode`.
    Raises OSError."""
    unfinished = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise
    _sync(path.parent)


def _sync(folder: Path) -> None:
    # A folder that is writable but not readable cannot be synced; the file still exists.
    with suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
