"""The answer of pems.sh.j2: the certificates of several files, by number. Pure."""

from __future__ import annotations

import base64
import binascii
import re

#: A file by its number, a line of its certificates, or the certificate in a kubeconfig.
_LINE = re.compile(r"([0-9]+)(?:([ :])(.*))?", re.DOTALL)


def parse_pems(text: str, most_bytes: int) -> dict[int, bytes]:
    """The PEM blocks of each file. Raises ValueError if a line is none of that script's."""
    found: dict[int, bytes] = {}
    for line in filter(None, text.split("\n")):
        parts = _LINE.fullmatch(line)
        if parts is None:
            raise ValueError("the answer about certificates is damaged")
        number, kind, rest = parts.groups()
        more = b"" if not kind else rest.encode() + b"\n" if kind == " " else _from_kubeconfig(rest)
        found[int(number)] = found.get(int(number), b"") + more
    return {number: pem[:most_bytes] for number, pem in found.items()}


def _from_kubeconfig(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        return b""
