"""The paths that flags name: which are written, and how they stand in a value."""

from __future__ import annotations

import pytest

from roles.engine.named_paths import API_SERVER, MANAGER, SCHEDULER, WRITTEN_PATHS, paths_in, written_path
from roles.engine.starting import FILES


def test_a_path_is_written_or_read_and_not_both() -> None:
    for row in WRITTEN_PATHS:
        assert row.what and not any(one.component in row.programs and one.flag == row.flag for one in FILES), row
    assert written_path(API_SERVER, "audit-log-path") and not written_path(SCHEDULER, "audit-log-path")
    assert any((one.component, one.flag) == (MANAGER, "root-ca-file") for one in FILES)


@pytest.mark.parametrize(
    ("values", "paths"),
    [
        (("/a/b.log",), ["/a/b.log"]),
        (("-",), []),
        (("/a/tls.crt,/a/tls.key:example.com,*.example.com",), ["/a/tls.crt", "/a/tls.key"]),
        (("/a//b/../c", "/d"), ["/a/c", "/d"]),
        (("unix:///run/x.sock",), ["/run/x.sock"]),
        (("https://127.0.0.1:2379",), []),
    ],
)
def test_the_paths_of_a_value(values: tuple[str, ...], paths: list[str]) -> None:
    assert paths_in(values) == paths
