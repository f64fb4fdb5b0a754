"""Secrets are masked where text comes in: no terminal, no record, no error has them after."""

from __future__ import annotations

import base64

import pytest

from roles.engine.api.errors import Invalid
from roles.engine.kubelet import ask
from roles.engine.transaction import Refusal, report

SECRET = "hunter2.of-the-node"
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9.c2lnbmF0dXJl"


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_the_telling_line_of_a_component() -> None:
    said = f'kubelet: E0101 12:00:00.0 1 run.go:74] "command failed" err="cannot log in: password={SECRET}, token {TOKEN}"'
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAxwqJ\nMIIEowIBAAKCAQEAxwqK\n-----END RSA PRIVATE KEY-----"
    status = report.parse(["state=reverted", f"reason=kubelet ended [password={SECRET}]", "evidence=" + _b64(key + "\n" + said)])
    for text in (status.error_line, *status.evidence_lines, status.reason):
        assert SECRET not in text and TOKEN not in text and "MIIE" not in text
    assert "cannot log in: password=<masked sha256:" in status.error_line


def test_a_line_of_the_log() -> None:
    assert str(report.log_text(f"log 12 failed: --bootstrap-token={SECRET}")).startswith("failed: --bootstrap-token=<masked sha256:")
    assert SECRET not in str(report.parse([f"log 12 password={SECRET}"]).steps)


def test_the_answer_of_a_binary() -> None:
    said = ask.verdicts([f"answer kubelet 1 {_b64(f'Error: bad flag --api-token={SECRET}')}="])
    assert said["kubelet"].startswith("bad flag --api-token=<masked") and SECRET not in said["kubelet"]


@pytest.mark.parametrize("where", ["message", "way_out"])
def test_a_refused_value(where: str) -> None:
    refusal = Refusal("w1", *(["x", f"take out password={SECRET}"] if where == "way_out" else [f"password={SECRET} is no number"]))
    assert SECRET not in str(refusal) + refusal.message + refusal.way_out and "password=<masked" in str(refusal)


def test_an_object_that_the_api_quotes() -> None:
    error = Invalid("cp1", "/x", f'HTTP 422: the API refuses the object (spec.env: Invalid value: {{"DB_PASSWORD": "{SECRET}"}})', "-")
    assert SECRET not in str(error) and SECRET not in repr(error) and "<masked" in error.rule
