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
from ai500.submission import untrusted

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

MAX_KEY_BYTES = 16_384


@dataclass(frozen=True, slots=True)
class Signature:
    """signature.json"""

    algorithm: Literal["ed25519"]
    public_key: str
    """PEM."""
    fingerprint: str
    signature: str
    """Base64."""


class BadSignatureError(Exception):
    """Why a signature is none; the caller says of which file."""


def available() -> bool:
    """Whether this Python can check signatures."""
    return importlib.util.find_spec("cryptography") is not None


def make_key(path: Path) -> str:
    """A new private key, readable by its owner alone, its public half beside it; fingerprint."""
    _require()
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
        if file.exists():
            raise InputError(f"{file} exists. A key is never overwritten: name another file.")
    with explaining_write_errors(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(secret)
            os.fsync(descriptor)
    write_text(public, _pem(key.public_key()))
    return _fingerprint(key.public_key())


def public_path(path: Path) -> Path:
    """Where `make_key` puts the public half."""
    return path.with_name(f"{path.stem}.pub.pem")


def sign(manifest: bytes, key: Path) -> Signature:
    """The signature of a manifest by the private key in a PEM file."""
    _require()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        secret = load_pem_private_key(_key_bytes(key), password=None)
    except TypeError as error:
        raise InputError(
            f"{key}: it has a passphrase, which ai500 can't ask for. Write it without one "
            f"(openssl pkey -in {key.name} -out plain.pem), sign, and delete that."
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError(
            f"{key}: not a private key in PEM form. `ai500 keygen FILE` makes one."
        ) from error
    if not isinstance(secret, Ed25519PrivateKey):
        raise InputError(f"{key}: not an Ed25519 key. `ai500 keygen FILE` makes one.")
    public = secret.public_key()
    return Signature(
        algorithm="ed25519",
        public_key=_pem(public),
        fingerprint=_fingerprint(public),
        signature=base64.b64encode(secret.sign(manifest)).decode(),
    )


def verified(text: bytes, *, manifest: bytes) -> str:
    """The fingerprint of the key that signed this manifest, or a BadSignatureError."""
    from cryptography.exceptions import InvalidSignature

    try:
        found = schema.decode(Signature, untrusted.parse(text.decode("utf-8")))
        sealed = base64.b64decode(found.signature, validate=True)
    except (ValueError, schema.SchemaError, untrusted.Objection, RecursionError) as error:
        raise BadSignatureError(f"it is not a signature ({error})") from error
    public = _public(found.public_key.encode("utf-8", errors="replace"))
    expected = Signature(
        algorithm="ed25519",
        public_key=_pem(public),
        fingerprint=_fingerprint(public),
        signature=base64.b64encode(sealed).decode(),
    )
    if json_text(schema.encode(expected)).encode() != text:
        raise BadSignatureError("it is not as `ai500 submit` writes it: it was changed")
    try:
        public.verify(sealed, manifest)
    except InvalidSignature as error:
        raise BadSignatureError(
            f"it is not the signature of this manifest.json by key {found.fingerprint}: one of "
            "the two was changed after signing"
        ) from error
    return found.fingerprint


def trusted(path: Path) -> dict[str, str]:
    """Fingerprint → name (of the file) of the public keys in a file or a folder."""
    _require()
    files = sorted(path.glob("*.pem")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path}: no public keys (*.pem) in it.")
    keys: dict[str, str] = {}
    for file in files:
        try:
            keys[_fingerprint(_public(_key_bytes(file)))] = file.name.removesuffix(".pem")
        except BadSignatureError as error:
            raise InputError(f"{file}: {error}.") from error
    return keys


def _public(pem: bytes) -> Ed25519PublicKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        found = load_pem_public_key(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadSignatureError("not a public key in PEM form") from error
    if not isinstance(found, Ed25519PublicKey):
        raise BadSignatureError("not an Ed25519 key")
    return found


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
        with path.open("rb") as file:
            return file.read(MAX_KEY_BYTES)
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}.") from error


def _require() -> None:
    if not available():
        raise EnvironmentLacksError(
            "keys and signatures need the Python package `cryptography`. "
            "Install it with: pip install cryptography"
        )
