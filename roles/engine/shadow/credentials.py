"""The certificates of one shadow control plane: an authority of its own, whose key never leaves this process, one certificate for its
servers, and one for its only client."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import IPv4Address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from roles.engine.api.kubeconfig import Credentials
from roles.engine.bounds import span

#: What its servers' certificate is valid for, besides the loopback's address.
SERVER_NAME = "shadow"
#: An API server allows these everything, whatever its mode (pkg/kubeapiserver/authorizer/config.go): here, nobody else anything.
MASTERS = "system:masters"
# Clocks of nodes differ. No shadow lives for a day.
_SPARE = span(2 * 86400)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True)
class ShadowCredentials:
    """`authority` (PEM) has signed both, and nothing else ever: `client` may do everything there, and
    nobody else anything."""

    authority: bytes
    server: Pair
    client: Pair

    @property
    def as_client(self) -> Credentials:
        return Credentials(self.authority.decode(), self.client.certificate, self.client.key)


def new_credentials() -> ShadowCredentials:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("daytwo-shadow-ca")
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    authority = (
        _builder(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    # etcd's gateway asks etcd itself with the server's certificate.
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return ShadowCredentials(
        authority.public_bytes(Encoding.PEM),
        _pair(
            name, key, SERVER_NAME, both, x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME), x509.IPAddress(IPv4Address("127.0.0.1"))])
        ),
        _pair(name, key, "shadow-client", [ExtendedKeyUsageOID.CLIENT_AUTH], group=MASTERS),
    )


def _pair(
    issuer: x509.Name,
    by: ec.EllipticCurvePrivateKey,
    name: str,
    usage: list[x509.ObjectIdentifier],
    names: x509.SubjectAlternativeName | None = None,
    group: str = "",
) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(name, group), issuer, key).add_extension(x509.ExtendedKeyUsage(usage), critical=False)
    # OpenSSL 3 with strict flags (Python 3.13) wants the identifier of the issuer's key.
    builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key()), critical=False)
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    made = builder.sign(by, hashes.SHA256())
    return Pair(made.public_bytes(Encoding.PEM), key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))


def _name(text: str, group: str = "") -> x509.Name:
    parts = [(NameOID.ORGANIZATION_NAME, group), (NameOID.COMMON_NAME, text)]
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in parts if value])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SPARE)
        .not_valid_after(now + _SPARE)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
