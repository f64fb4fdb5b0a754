"""Credentials from a kubeconfig, without a file on the operator's disk.

Source of the format: k8s.io/client-go/tools/clientcmd/api/v1/types.go.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from roles.engine.api.errors import KubeconfigError


@dataclass(frozen=True)
class Credentials:
    """Who the server must be (`authority`, PEM) and who we are: a certificate and key (PEM), or a bearer token."""

    authority: str
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)


def parse_kubeconfig(data: bytes) -> Credentials:
    """The credentials of the current context. Raises KubeconfigError, which never shows a secret."""
    try:
        config = YAML(typ="safe", pure=True).load(data)
    except (YAMLError, UnicodeDecodeError) as error:
        # The parser's message quotes the text, which has a key.
        where = getattr(error, "problem_mark", None)
        raise KubeconfigError(f"kubeconfig: not YAML{f' (line {where.line + 1})' if where else ''}") from None
    if not isinstance(config, dict):
        raise KubeconfigError("kubeconfig: empty, or not a mapping; use the content of admin.conf")
    current = config.get("current-context")
    if not current:
        raise KubeconfigError("kubeconfig: current-context is not set; set it with `kubectl config use-context`")
    context = _named(config, "contexts", "context", current)
    cluster = _named(config, "clusters", "cluster", context.get("cluster"))
    user = _named(config, "users", "user", context.get("user"))

    if cluster.get("insecure-skip-tls-verify"):
        raise KubeconfigError(
            "kubeconfig: insecure-skip-tls-verify: daytwo always verifies the server's certificate; set certificate-authority-data instead"
        )
    authority = _inline(cluster, "certificate-authority", "cluster")
    if authority is None:
        raise KubeconfigError("kubeconfig: certificate-authority-data is missing: the server cannot be verified")
    for key in ("exec", "auth-provider", "tokenFile", "username"):
        if user.get(key):
            raise KubeconfigError(f"kubeconfig: user has {key}, which is not supported; use a client certificate or a token")
    certificate = _inline(user, "client-certificate", "user")
    key_data = _inline(user, "client-key", "user")
    token = user.get("token") or None
    if (certificate is None) != (key_data is None):
        raise KubeconfigError("kubeconfig: client-certificate-data and client-key-data are both needed")
    if certificate is None and token is None:
        raise KubeconfigError("kubeconfig: user has neither a client certificate nor a token; use admin.conf")
    if token is not None and (not isinstance(token, str) or not token.isascii() or not token.isprintable()):
        raise KubeconfigError("kubeconfig: token is not one line of printable ASCII")
    try:
        text = authority.decode("ascii")
    except UnicodeDecodeError:
        raise KubeconfigError("kubeconfig: certificate-authority-data is not PEM") from None
    return Credentials(text, certificate, key_data, token)


def _named(config: dict[str, Any], group: str, kind: str, name: Any) -> dict[str, Any]:
    entries = config.get(group)
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and entry.get("name") == name:
            value = entry.get(kind)
            return value if isinstance(value, dict) else {}
    raise KubeconfigError(f"kubeconfig: {group} has no entry named {name!r}, which current-context refers to")


def _inline(entry: dict[str, Any], name: str, owner: str) -> bytes | None:
    """`NAME-data`, decoded. A path (`NAME`) is one of the node's file system, which cannot be read here."""
    data = entry.get(f"{name}-data")
    if not data:
        if entry.get(name):
            raise KubeconfigError(
                f"kubeconfig: {owner} has {name}: {entry[name]}, a path on the node it came from. "
                f"Use a kubeconfig with {name}-data: admin.conf, or what `kubectl config view --raw --flatten` prints"
            )
        return None
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise KubeconfigError(f"kubeconfig: {name}-data is not base64") from None


@lru_cache(maxsize=16)
def tls_context(credentials: Credentials, verify: bool = True) -> ssl.SSLContext:
    """A context that verifies the server only against the kubeconfig's CA (or not at all), and presents our certificate.

    OpenSSL reads certificate and key only from paths: they are passed as memfds, which are memory with a path, not files on a disk.
    Raises KubeconfigError if they are not PEM or do not match.
    """
    try:
        # With cadata, the system's own authorities are NOT loaded.
        context = ssl.create_default_context(cadata=credentials.authority)
        if credentials.certificate is not None and credentials.key is not None:
            with _in_memory(credentials.certificate) as certificate, _in_memory(credentials.key) as key:
                # The password callback keeps OpenSSL from asking at the terminal for an encrypted key.
                context.load_cert_chain(certificate, key, password=lambda: b"")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or "not PEM"
        raise KubeconfigError(f"kubeconfig: its certificates or key cannot be used: {reason}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


@contextlib.contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    descriptor = os.memfd_create("daytwo", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as stream:
            stream.write(data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
