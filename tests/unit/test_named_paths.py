"""The table of paths in flags and fields: every flag of the programs that names a path is in it, once."""

from __future__ import annotations

import re

import pytest

from roles.engine.kubelet import schema
from roles.engine.named_paths import API_SERVER, KUBELET, MANAGER, NAMED_PATHS, SCHEDULER, Use, named_path, paths_in

# What the programs of 1.36 list in --help with a type of text, and with a word for a path in their name. tests/integration/test_flag_questions.py
# compares the names with the running binaries.
LOOKS = re.compile(
    r"(?i).*(?:-file|cafile|certfile|keyfile|-path|-dir|-kubeconfig|^kubeconfig|-certificate|-client-key|-manifest|-cert-key|filepath.*"
    r"|^config|-config|-endpoint|plugin-dir|encryption-provider-config)$"
)
#: Names that look like paths and are none.
NO_PATHS = {"runtime-config", "endpoint-reconciler-type", "authorization-always-allow-paths"}


def test_each_name_is_in_one_row() -> None:
    samples = [
        (API_SERVER, "audit-log-path"),
        (API_SERVER, "etcd-cafile"),
        (API_SERVER, "tls-sni-cert-key"),
        (MANAGER, "cluster-signing-kubelet-serving-cert-file"),
        (SCHEDULER, "config"),
        (KUBELET, "authentication.x509.clientCAFile"),
    ]
    for program, name in samples:
        assert sum(program in one.programs and re.fullmatch(one.name, name) is not None for one in NAMED_PATHS) == 1, (program, name)
    assert named_path(SCHEDULER, "audit-log-path") is None and named_path(API_SERVER, "event-ttl") is None


def test_every_field_and_flag_of_a_kubelet_that_sounds_like_a_path_is_known() -> None:
    minor = schema.NEWEST
    fields = [name for name in schema.fields(minor) if re.search(r"(File|Path|Dir|Conf|Endpoint)$", name)]
    flags = [name for name, flag in schema.flags(minor).items() if flag.kind == "string" and LOOKS.match(name)]
    unknown = [name for name in [*fields, *flags] if named_path(KUBELET, name) is None and name not in NO_PATHS]
    assert unknown == []


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


def test_what_is_written_has_a_name_for_people() -> None:
    assert all(one.what for one in NAMED_PATHS if one.programs != (KUBELET,) and one.use in (Use.WRITTEN, Use.WRITTEN_DIRECTORY))
