"""Certificates and certificate requests, read by the library that SSH uses already. Pure.

What is read here decides whether a request is approved, so nothing of X.509 is parsed by daytwo itself, and no program of a node judges
it: a node may be the attacker. `cryptography` comes with paramiko, and verifies the SSH connection with the same code.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import ip_address

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtensionOID, NameOID

#: A kubelet's request has about 500 bytes.
MOST_BYTES = 16 * 1024
_PEM = re.compile(rb"-----BEGIN (?P<kind>[A-Z0-9 ]+)-----[A-Za-z0-9+/=\s]+?-----END (?P=kind)-----")
_REQUEST = re.compile(rb"\s*-----BEGIN CERTIFICATE REQUEST-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE REQUEST-----\s*")
_LEAST_RSA_BITS = 2048
#: PKCS#9 extensionRequest (RFC 2985), the only attribute that a kubelet's request has.
_EXTENSION_REQUEST = "1.2.840.113549.1.9.14"
_ERRORS = (ValueError, TypeError, UnsupportedAlgorithm, x509.DuplicateExtension, x509.UnsupportedGeneralNameType)


class CertificateError(ValueError):
    """It cannot be read as X.509; says why."""


@dataclass(frozen=True)
class SubjectNames:
    """The subject alternative names: DNS names as written, IP addresses in their usual form. `others`: names of any other kind, as text."""

    dns: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join([*sorted(self.dns), *sorted(self.ips), *self.others]) or "no name"


@dataclass(frozen=True)
class Certificate:
    """One certificate. `subject` and `issuer` in RFC 4514; `public_key` is its DER (SubjectPublicKeyInfo); `not_before` and `not_after` in
    UTC. `is_self_signed`: issuer and subject are the same."""

    subject: str
    issuer: str
    common_name: str
    names: SubjectNames
    not_before: datetime
    not_after: datetime
    is_ca: bool
    public_key: bytes
    der: bytes = field(default=b"", repr=False)

    @property
    def is_self_signed(self) -> bool:
        return self.subject == self.issuer

    def left(self, now: datetime) -> float:
        """Seconds until it expires; negative once it has."""
        return (self.not_after - now).total_seconds()


@dataclass(frozen=True)
class CertificateRequest:
    """One PKCS#10 request. `subject`: its attributes in order, as (name of the attribute, value); `extensions`: the OIDs of the requested
    extensions except subject alternative names; `key`: kind and size; `weak`: why the key or the signature is not accepted ("": it is)."""

    subject: tuple[tuple[str, str], ...]
    names: SubjectNames
    extensions: tuple[str, ...]
    key: str
    public_key: bytes
    weak: str = ""


def parse_certificates(text: bytes) -> list[Certificate]:
    """All certificates of a PEM file, in order; other blocks, such as keys, are skipped. Raises CertificateError."""
    return [_certificate(_loaded(match.group(0))) for match in _PEM.finditer(text) if match["kind"] == b"CERTIFICATE"]


def parse_der(data: bytes) -> Certificate:
    """One certificate as a TLS handshake gives it. Raises CertificateError."""
    try:
        return _certificate(x509.load_der_x509_certificate(data))
    except _ERRORS as error:
        raise CertificateError(f"it is not a certificate ({error})") from None


def is_issued_by(one: Certificate, authority: Certificate) -> bool:
    """The authority's key has signed it, and its issuer is the authority's subject."""
    try:
        x509.load_der_x509_certificate(one.der).verify_directly_issued_by(x509.load_der_x509_certificate(authority.der))
    except (InvalidSignature, *_ERRORS):
        return False
    return True


def parse_request(text: bytes) -> CertificateRequest:
    """A certificate request: exactly one PEM block, as pkg/apis/certificates/helpers.go (ParseCSR) reads the first. Raises
    CertificateError.

    Go's signer collects the names from every attribute extensionRequest and from no other; the library here stops at the first, and also
    takes Microsoft's attribute for one. So exactly one attribute is accepted: with two, what is judged here might not be what is signed.
    """
    if len(text) > MOST_BYTES:
        raise CertificateError(f"it has {len(text)} bytes, and a kubelet's has about 500")
    if not _REQUEST.fullmatch(text):
        raise CertificateError("it is not one PEM block of the type CERTIFICATE REQUEST, and nothing else")
    try:
        found = x509.load_pem_x509_csr(text)
        attributes = [one.oid.dotted_string for one in found.attributes]
        names, extensions = SubjectNames(), []
        for one in found.extensions:
            if one.oid == ExtensionOID.SUBJECT_ALTERNATIVE_NAME and isinstance(one.value, x509.SubjectAlternativeName):
                names = _names(one.value)
            else:
                extensions.append(one.oid.dotted_string)
        subject = tuple((_attribute(item), str(item.value)) for item in found.subject)
        key, weak = _key(found.public_key())
        if not weak and not found.is_signature_valid:
            weak = "its signature is not by its own key"
        public = found.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except _ERRORS as error:
        raise CertificateError(f"it is not a certificate request ({error})") from None
    if attributes not in ([], [_EXTENSION_REQUEST]):
        raise CertificateError(f"its attributes are {', '.join(attributes)}, and a kubelet's request has one, {_EXTENSION_REQUEST}")
    return CertificateRequest(subject, names, tuple(extensions), key, public, weak)


def usual_addresses(addresses: Collection[str]) -> frozenset[str]:
    """IP addresses in their usual form; what is none is left out."""
    found = set()
    for text in addresses:
        try:
            found.add(_usual(ip_address(text)))
        except ValueError:
            continue
    return frozenset(found)


def _usual(address: object) -> str:
    """An IPv4 address in IPv6 (::ffff:192.0.2.1) is the same address to Go's TLS clients (net.IP.Equal), so it is here too."""
    return str(getattr(address, "ipv4_mapped", None) or address)


def _loaded(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except _ERRORS as error:
        raise CertificateError(f"it is not a certificate ({error})") from None


def _certificate(found: x509.Certificate) -> Certificate:
    try:
        names, is_ca = SubjectNames(), False
        for one in found.extensions:
            if isinstance(one.value, x509.SubjectAlternativeName):
                names = _names(one.value)
            elif isinstance(one.value, x509.BasicConstraints):
                is_ca = one.value.ca
        common = [str(item.value) for item in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        return Certificate(
            found.subject.rfc4514_string(),
            found.issuer.rfc4514_string(),
            common[0] if len(common) == 1 else "",
            names,
            found.not_valid_before_utc,
            found.not_valid_after_utc,
            is_ca,
            found.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
            found.public_bytes(Encoding.DER),
        )
    except _ERRORS as error:
        raise CertificateError(f"it is not a certificate ({error})") from None


def _names(found: x509.SubjectAlternativeName) -> SubjectNames:
    dns, ips, others = [], [], []
    for one in found:
        if isinstance(one, x509.DNSName):
            dns.append(one.value)
        elif isinstance(one, x509.IPAddress):
            ips.append(_usual(one.value))
        else:
            others.append(f"{type(one).__name__} {getattr(one, 'value', '')}".strip())
    return SubjectNames(tuple(dns), tuple(ips), tuple(others))


def _attribute(item: x509.NameAttribute[str | bytes]) -> str:
    return {NameOID.COMMON_NAME: "CN", NameOID.ORGANIZATION_NAME: "O"}.get(item.oid, item.oid.dotted_string)


def _key(found: object) -> tuple[str, str]:
    """Kind and size of a public key, and why it is too weak."""
    if isinstance(found, ec.EllipticCurvePublicKey):
        weak = "" if found.curve.key_size >= 256 else f"its key is on the curve {found.curve.name}"
        return f"ECDSA {found.curve.name}", weak
    if isinstance(found, rsa.RSAPublicKey):
        weak = "" if found.key_size >= _LEAST_RSA_BITS else f"its RSA key has {found.key_size} bits; {_LEAST_RSA_BITS} are the least"
        return f"RSA {found.key_size}", weak
    if isinstance(found, ed25519.Ed25519PublicKey):
        return "Ed25519", ""
    return type(found).__name__, "its key is of a kind that no kubelet makes"
