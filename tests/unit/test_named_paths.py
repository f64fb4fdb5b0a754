"""The paths that flags name: which are written, and how they stand in a value."""

from __future__ import annotations

import re

import pytest

from roles.engine.named_paths import API_SERVER, MANAGER, SCHEDULER, WRITTEN_PATHS, paths_in, written_path
from roles.engine.starting import FILES

#: Names of flags that sound like a path (tests/integration/test_flag_questions.py), and those that name none.
LOOKS = re.compile(
    r"(?i).*(?:-file|cafile|certfile|keyfile|-path|-dir|-kubeconfig|^kubeconfig|-certificate|-client-key|-manifest|-cert-key|filepath.*"
    r"|^config|-config|-endpoint|plugin-dir|encryption-provider-config)$"
)
NO_PATHS = {"runtime-config", "endpoint-reconciler-type", "authorization-always-allow-paths"}


def known(program: str, flag: str) -> bool:
    """Whether one of the tables has the flag."""
    return written_path(program, flag) is not None or any((row.component, row.flag) == (program, flag) for row in FILES)


def test_a_path_is_written_or_read_and_not_both() -> None:
    for row in WRITTEN_PATHS:
        assert row.what and not any(one.component in row.programs and one.flag == row.flag for one in FILES), row
    assert known(API_SERVER, "audit-log-path") and known(MANAGER, "root-ca-file") and not known(SCHEDULER, "audit-log-path")


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
