"""What a rehearsal over TLS needs: a CA, a certificate for the SuperLink, and a key for every node.

An operator's own CA and keys do as well; these are made so that `--secure` needs no other program.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM
VALID = timedelta(days=30)


def make_authority(folder: Path, name: str = "spreadout rehearsal CA") -> None:
    """`ca.crt` and `ca.key`."""
    key = ec.generate_private_key(ec.SECP384R1())
    subject = _named(name)
    certificate = (
        _certificate(subject, subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.crt").write_bytes(certificate.public_bytes(PEM))
    _write_private(folder / "ca.key", _pem(key))


def make_certificate(folder: Path, addresses: Sequence[str]) -> None:
    """`server.crt` and `server.key` for a SuperLink at these addresses, signed by the CA."""
    authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    signing = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP384R1())
    places = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    certificate = (
        _certificate(_named(addresses[0]), authority.subject, key.public_key())
        .add_extension(x509.SubjectAlternativeName(places), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
        )
        .sign(signing, hashes.SHA256())
    )
    (folder / "server.crt").write_bytes(certificate.public_bytes(PEM))
    _write_private(folder / "server.key", _pem(key))


def make_node_key(path: Path) -> None:
    """A node's key pair as `ssh-keygen -t ecdsa -b 384` writes it: the file, and its `.pub`."""
    key = ec.generate_private_key(ec.SECP384R1())
    form, none = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    _write_private(path, key.private_bytes(PEM, form, none))
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    public_path(path).write_bytes(public + b"\n")


def make_secret(path: Path) -> None:
    """32 random bytes that only their owner may read."""
    _write_private(path, os.urandom(32))


def public_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.pub")


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(PEM, form, serialization.NoEncryption())


def _write_private(path: Path, content: bytes) -> None:
    """So that nobody else can read it, not even for a moment."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
