"""A signed report of a verification or a restore, for auditors: JSON, its Ed25519 signature, and a page.

| file | is |
|---|---|
| FILE | JSON |
| FILE.sig | with a key: the signature of FILE's bytes, 64 bytes in Base64 |
| FILE.html | the same as a page; it is not signed |
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.errors import CorruptDataError, InvalidArgumentError, NotFoundError, StorageError
from tidelog.extras import imported_from
from tidelog.formats.checkpoints import replace_file
from tidelog.formats.files import read_whole

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

FORMAT = "tidelog-report"
VERSION = 1

_STYLE = "body{font:15px sans-serif;margin:2em}td,th{padding:.2em 1em .2em 0;text-align:left}td{font-family:monospace}"


class Report:
    """A report to be written to `path`. Create the object before the work begins, so that a wrong key or folder is noticed early.

    Raises InvalidArgumentError for a key that is not Ed25519, NotFoundError if the folder does not exist, StorageError,
    MissingPackageError.
    """

    def __init__(self, path: Path, sign_key: Path | None = None) -> None:
        if not path.absolute().parent.is_dir():
            raise NotFoundError("the folder of the report does not exist", path=path.absolute().parent)
        self._path = path
        self._key = None if sign_key is None else _private_key(sign_key)

    def write(
        self,
        what: str,
        facts: Mapping[str, Any],
        partitions: Sequence[Mapping[str, Any]],
        differences: Sequence[str],
    ) -> None:
        """Write the report's files. `what` names the work ("restore"), and `facts` are about all of it. Raises StorageError."""
        content = {"format": FORMAT, "version": VERSION, "what": what, **facts}
        content |= {"partitions": list(partitions), "differences": list(differences)}
        data = json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n"
        replace_file(self._path, data)
        signature = _beside(self._path, ".sig")
        if self._key is not None:
            replace_file(signature, base64.b64encode(self._key.sign(data)) + b"\n")
        else:
            signature.unlink(missing_ok=True)  # The signature of an older report.
        replace_file(_beside(self._path, ".html"), _page(content).encode())


def check_report(path: Path, public_key: Path) -> dict[str, Any]:
    """Check a report's signature with a public key, and return the report.

    Raises CorruptDataError if the report was signed with a different key or was changed after it was signed, InvalidArgumentError
    for a key that is not Ed25519, NotFoundError.
    """
    data, signature = _read(path, "report"), _read(_beside(path, ".sig"), "signature of the report")
    with imported_from("tiered", "cryptography, which checks signatures"):
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    try:
        key = load_pem_public_key(_read(public_key, "public key"))
    except ValueError as error:
        raise InvalidArgumentError("the file is not a public key in PEM format", path=public_key) from error
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidArgumentError("not an Ed25519 key", path=public_key, found=type(key).__name__)
    try:
        key.verify(base64.b64decode(signature.strip(), validate=True), data)
    except (InvalidSignature, ValueError):
        raise CorruptDataError("the report is not signed with this key, or was changed after it was signed", path=path) from None
    try:
        content: dict[str, Any] = json.loads(data)
        if content["format"] != FORMAT or content["version"] != VERSION:
            raise ValueError(content["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptDataError("the signature is valid, but the report has an unknown format or version", path=path) from error
    return content


def _private_key(path: Path) -> Ed25519PrivateKey:
    with imported_from("tiered", "cryptography, which signs reports"):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    try:
        key = load_pem_private_key(_read(path, "private key"), password=None)
    except (ValueError, TypeError) as error:  # TypeError means that the key has a password.
        raise InvalidArgumentError("the file is not a private key in PEM format without a password", path=path) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidArgumentError("not an Ed25519 key", path=path, found=type(key).__name__)
    return key


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _read(path: Path, what: str) -> bytes:
    try:
        return read_whole(path)
    except FileNotFoundError:
        raise NotFoundError(f"the {what} does not exist", path=path) from None
    except OSError as error:
        raise StorageError(f"cannot read the {what}: {error.strerror}", path=path) from error


def _page(content: Mapping[str, Any]) -> str:
    partitions, differences = content["partitions"], content["differences"]
    facts = {name: value for name, value in content.items() if name not in ("partitions", "differences", "format", "version")}
    rows = "".join(f"<tr><th>{escape(name)}<td>{escape(str(value))}" for name, value in facts.items())
    names = list(partitions[0]) if partitions else []
    header = "".join(f"<th>{escape(name)}" for name in names)
    table = "".join("<tr>" + "".join(f"<td>{escape(str(one[name]))}" for name in names) for one in partitions)
    found = "".join(f"<li>{escape(one)}" for one in differences) or "<li>none"
    title = f"Report of a {content['what']}"
    return (
        f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>"
        f"<table>{rows}</table><h2>Differences</h2><ul>{found}</ul><h2>Partitions</h2><table><tr>{header}{table}</table>\n"
    )
