"""X.509: what a certificate and a certificate request say, and whether a request is exactly what a node may ask for. Pure."""

from roles.engine.certificates import approval
from roles.engine.certificates.material import UNREAD, Material, Unread, parse_material, parse_own, parse_pems
from roles.engine.certificates.x509 import Certificate, CertificateError, is_issued_by, parse_certificates, parse_der, usual_addresses

__all__ = [
    "UNREAD",
    "Certificate",
    "CertificateError",
    "Material",
    "Unread",
    "approval",
    "is_issued_by",
    "parse_certificates",
    "parse_der",
    "parse_material",
    "parse_own",
    "parse_pems",
    "usual_addresses",
]
