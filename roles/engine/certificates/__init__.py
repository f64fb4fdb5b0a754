"""X.509: what a certificate and a certificate request say, and whether a request is exactly what a node may ask for. Pure."""

from roles.engine.certificates.approval import (
    SERVING_SIGNER,
    Claims,
    ExpectedNames,
    NodeIdentity,
    claimed_by_others,
    expected_names,
    is_pending,
    is_serving,
    objections,
    request_of,
    requester,
)
from roles.engine.certificates.x509 import (
    Certificate,
    CertificateError,
    CertificateRequest,
    SubjectNames,
    is_issued_by,
    parse_certificates,
    parse_der,
    parse_request,
    usual_addresses,
)

__all__ = [
    "SERVING_SIGNER",
    "Certificate",
    "CertificateError",
    "CertificateRequest",
    "Claims",
    "ExpectedNames",
    "NodeIdentity",
    "SubjectNames",
    "claimed_by_others",
    "expected_names",
    "is_issued_by",
    "is_pending",
    "is_serving",
    "objections",
    "parse_certificates",
    "parse_der",
    "parse_request",
    "request_of",
    "requester",
    "usual_addresses",
]
