"""Signatures: Ed25519 over the exact bytes of a submission's manifest.

The manifest holds the SHA-256 of every other file, so one signature covers them all. Keys are PEM
files as `openssl` reads them; a key's fingerprint is the SHA-256 of its DER form:

    openssl pkey -pubin -in key.pub.pem -outform DER | sha256sum
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ai500.core import schema
from ai500.core.atomic import explaining_write_errors, json_text, write_text
from ai500.core.errors import EnvironmentLacksError, InputError
from ai500.core.reading import open_regular, parse_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

MAX_KEY_BYTES = 16_384
MAKE_KEY = "`ai500 keygen FILE` makes one."


@dataclass(frozen=True, slots=True)
class Signature:
    """Content of signature.json."""

    algorithm: Literal["ed25519"]
    public_key: str
    """Public key in PEM form."""
    fingerprint: str
    signature: str
    """Signature of manifest.json in Base64."""


class BadSignatureError(Exception):
    """Reason why a signature or key is not valid; the caller names the file."""


def available() -> bool:
    """Return True if the package `cryptography` is installed."""
    return importlib.util.find_spec("cryptography") is not None


def make_key(path: Path) -> str:
    """Write a new private key (mode 0600) and its public key; return the fingerprint."""
    _require_cryptography()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public = public_path(path)
    for file in (path, public):
        if file.exists() or file.is_symlink():
            message = f"{file} exists; ai500 does not overwrite a key."
            raise InputError(message, path=file, remedy="Name another file.")
    with explaining_write_errors(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(secret)
            os.fsync(descriptor)
    write_text(public, _pem(key.public_key()))
    return _fingerprint(key.public_key())


def public_path(path: Path) -> Path:
    """Return the path of the public key that belongs to a private key's path."""
    return path.with_name(f"{path.stem}.pub.pem")


def sign(manifest: bytes, key: Path) -> Signature:
    """Sign a manifest by the private key in a PEM file."""
    _require_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        secret = load_pem_private_key(_key_bytes(key), password=None)
    except TypeError as error:
        raise InputError(
            f"{key}: the key has a passphrase, which ai500 does not support.",
            path=key,
            remedy=f"Write a copy without one (openssl pkey -in {key.name} -out plain.pem), sign "
            "with it, and delete it.",
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError(
            f"{key}: not a private key in PEM form.", path=key, remedy=MAKE_KEY
        ) from error
    if not isinstance(secret, Ed25519PrivateKey):
        raise InputError(f"{key}: not an Ed25519 key.", path=key, remedy=MAKE_KEY)
    return _signature(secret.public_key(), secret.sign(manifest))


def _signature(public: Ed25519PublicKey, signature: bytes) -> Signature:
    return Signature(
        algorithm="ed25519",
        public_key=_pem(public),
        fingerprint=_fingerprint(public),
        signature=base64.b64encode(signature).decode(),
    )


def verify(text: bytes, *, manifest: bytes) -> str:
    """Return the fingerprint of the key that signed a manifest, or raise BadSignatureError.

    `text` is the content of signature.json.
    """
    from cryptography.exceptions import InvalidSignature

    try:
        signature = schema.decode(Signature, parse_json(text.decode("utf-8")))
        signature_bytes = base64.b64decode(signature.signature, validate=True)
    except (ValueError, schema.SchemaError) as error:
        raise BadSignatureError(f"it is not a signature ({error})") from error
    public = _public_key(signature.public_key.encode("utf-8", errors="replace"))
    if json_text(schema.encode(_signature(public, signature_bytes))).encode() != text:
        raise BadSignatureError("it is not as `ai500 submit` writes it: it was changed")
    try:
        public.verify(signature_bytes, manifest)
    except InvalidSignature as error:
        raise BadSignatureError(
            f"it is not the signature of this manifest.json by key {signature.fingerprint}: one of "
            "the two was changed after signing"
        ) from error
    return signature.fingerprint


def load_trusted_keys(path: Path) -> dict[str, str]:
    """Load public keys from a file or a folder; return fingerprint → name of the file."""
    _require_cryptography()
    files = sorted(path.glob("*.pem")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path}: the folder has no public keys (*.pem).", path=path)
    keys: dict[str, str] = {}
    for file in files:
        try:
            keys[_fingerprint(_public_key(_key_bytes(file)))] = file.name.removesuffix(".pem")
        except BadSignatureError as error:
            raise InputError(f"{file}: {error}.", path=file) from error
    return keys


def _public_key(pem: bytes) -> Ed25519PublicKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadSignatureError("not a public key in PEM form") from error
    if not isinstance(key, Ed25519PublicKey):
        raise BadSignatureError("not an Ed25519 key")
    return key


def _pem(key: Ed25519PublicKey) -> str:
    from cryptography.hazmat.primitives import serialization

    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    ).decode()


def _fingerprint(key: Ed25519PublicKey) -> str:
    from cryptography.hazmat.primitives import serialization

    der = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(der).hexdigest()


def _key_bytes(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read(MAX_KEY_BYTES)
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}.", path=path) from error


def _require_cryptography() -> None:
    if not available():
        raise EnvironmentLacksError(
            "keys and signatures need the Python package `cryptography`.",
            value="cryptography",
            remedy="Install it with: pip install cryptography",
        )
