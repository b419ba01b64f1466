"""Certificates of a link: one CA of its own, one leaf for each end. Pure functions: PEM bytes in, PEM bytes out.

EC P-256 keys, SHA-256 signatures. A leaf serves both as a TLS server and as a TLS client, since both ends verify each
other; the name that counts is the DNS subject alternative name, never the common name.

`cryptography` is imported when a function is called: it comes with the extras `operator`, `link` and `cli`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pdd.common.errors import InvalidInput

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

BACKDATE = timedelta(minutes=5)
"""A new certificate is valid from this long ago, so that a peer whose clock runs behind accepts it."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM. The key is PKCS #8 without a password."""

    cert: bytes
    key: bytes


def make_ca(common_name: str = "pdd-link-ca", days: int = 3650, *, now: datetime | None = None) -> Pair:
    """A new self-signed CA that may sign leaves only (path length 0), valid for `days` days from `now` (UTC)."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(common_name)
    builder = (
        _builder(name, name, key.public_key(), days, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(sign_certs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(ca: Pair, dns_names: Sequence[str], days: int = 365, *, now: datetime | None = None) -> Pair:
    """A new leaf for `dns_names` (the first is its common name too), signed by `ca`, valid for `days` days.

    Raises InvalidInput if there is no name, or if `ca` does not hold a certificate and its key.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    if not dns_names:
        raise InvalidInput("dns_names", list(dns_names), "give at least one DNS name for the certificate")
    try:
        ca_cert = x509.load_pem_x509_certificate(ca.cert)
        ca_key = serialization.load_pem_private_key(ca.key, password=None)
    except ValueError as error:
        raise InvalidInput("ca", "<PEM>", f"is not a PEM certificate with its PEM key: {error}") from error
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
        raise InvalidInput("ca.key", type(ca_key).__name__, "use an elliptic-curve key, as make_ca writes it")
    key = ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        _builder(_name(dns_names[0]), ca_cert.subject, key.public_key(), days, now)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in dns_names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(sign_certs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
    )
    return _pair(builder.sign(ca_key, hashes.SHA256()), key)


def not_after(cert: bytes) -> datetime:
    """When the PEM certificate ends (UTC). Raises InvalidInput if it is not one."""
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(cert).not_valid_after_utc
    except ValueError as error:
        raise InvalidInput("cert", "<PEM>", f"is not a PEM certificate: {error}") from error


def _name(common_name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])  # 64: X.520's upper bound


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int, now: datetime | None
) -> x509.CertificateBuilder:
    from cryptography import x509

    start = (now or datetime.now(UTC)) - BACKDATE
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + BACKDATE + timedelta(days=days))
    )


def _key_usage(*, sign_certs: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not sign_certs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certs,
        crl_sign=sign_certs,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(cert: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    from cryptography.hazmat.primitives import serialization

    return Pair(
        cert=cert.public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )
