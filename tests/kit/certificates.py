"""Certificates made for a test: an authority, and what it has signed."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    cert: bytes
    key: bytes

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        cert, key = directory / f"{name}.pem", directory / f"{name}.key"
        cert.write_bytes(self.cert)
        key.write_bytes(self.key)
        return cert, key


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class Authority:
    def __init__(self, name: str = "authority.example.org") -> None:
        self._key, self._name = ec.generate_private_key(ec.SECP256R1()), _name(name)
        now = datetime.now(UTC)
        built = self._begun(self._name, self._key.public_key(), now - DAY, now + DAY).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.certificate = built.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _begun(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, since: datetime, until: datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(since)
            .not_valid_after(until)
        )

    def issue(self, host: str) -> tuple[bytes, bytes]:
        """Certificate and key, for a host or an address."""
        found = self.pair(host)
        return found.cert, found.key

    def pair(self, name: str = "localhost", *, expired: bool = False) -> Pair:
        """For a server on this machine or of that name, or for a client."""
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        since, until = (now - 2 * DAY, now - DAY) if expired else (now - DAY, now + DAY)
        names = {_alternative("localhost"), _alternative("127.0.0.1"), _alternative(name)}
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        built = (
            self._begun(_name(name), key.public_key(), since, until)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        )
        cert = built.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        return Pair(cert, _pem(key))
