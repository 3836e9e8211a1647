"""Addresses of data folders in object storage.

| address | names |
|---|---|
| `s3://bucket/prefix`, `s3a://…`, `s3n://…` | S3, or a server with its API |
| `gs://bucket/prefix` | Google Cloud Storage |
| `abfs://container@account.dfs.core.windows.net/prefix`, `abfss://…`, `az://container/prefix` | Azure |
| `hdfs://host:8020/path` | HDFS |
| `file:///path`, `/path` | a local folder (`folder_path`), not an object |

An address and its options are passed on together, from a command or an argument to the executor that reads. `ObjectAddress` is a
`str` that carries both. Its text is only the address, so printing and comparing it reveals no secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.errors import InvalidArgumentError
from tidelog.folder_path import HIDDEN, OBJECT_SCHEMES, without_keys
from tidelog.near_names import did_you_mean

_ADDRESS = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*):(?!\d+(?:,|$))(/*)(.*)", re.DOTALL)
"""Matches an address with a scheme. `gs:9092` does not match: it is a host and its port."""
_BETWEEN = re.compile(r"[:,]\s*(?=[A-Za-z][A-Za-z0-9+.-]*://|/(?!/))")
"""Matches the separator between several addresses in one text."""
_BUCKET = r"[A-Za-z0-9][A-Za-z0-9._-]*(@[A-Za-z0-9._-]+)?"
_HOST = r"[A-Za-z0-9][A-Za-z0-9._-]*(:\d+)?"


class Place(NamedTuple):
    """The parts of an address in object storage."""

    service: str
    scheme: str
    bucket: str
    prefix: str
    """The prefix, without slashes at either end; empty for the whole bucket."""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")


class ObjectAddress(str):
    """An address that carries its options. It can be pickled; as text it is only the address. If the address names several
    folders with different options, `parts` has each folder's address with its own options.
    """

    __slots__ = ("options", "parts")
    options: Mapping[str, str]
    parts: tuple[str, ...]

    def __new__(cls, text: str, options: Mapping[str, str], parts: tuple[str, ...] = ()) -> ObjectAddress:
        made = super().__new__(cls, text)
        made.options, made.parts = options, parts
        return made

    def __str__(self) -> str:
        return "".join(self)

    def __reduce__(self) -> tuple[type[ObjectAddress], tuple[str, dict[str, str], tuple[str, ...]]]:
        return ObjectAddress, (str(self), dict(self.options), self.parts)


def addresses_in(text: str | os.PathLike[str]) -> list[str]:
    """Return the addresses in a text such as `s3://bucket/a,s3://bucket/b`. Each carries its own options if it has any, otherwise
    the options of the whole text.
    """
    if isinstance(text, ObjectAddress) and text.parts:
        return list(text.parts)
    options, parts = options_of(text), _parts(os.fspath(text))
    return [ObjectAddress(part, options) if options and is_object_address(part) else part for part in parts]


def _parts(text: str) -> list[str]:
    """Return the addresses in a text. If the text begins with a scheme, the colon after the scheme is not a separator, even
    before a single slash.
    """
    match = _ADDRESS.match(text)
    begin = match.start(3) if match is not None and match[1].lower() in OBJECT_SCHEMES else 0
    first, *others = _BETWEEN.split(text[begin:])
    return [text[:begin] + first, *others]


def are_several_objects(address: object) -> bool:
    """Return whether a text names several folders, of which at least one is in object storage."""
    parts = addresses_in(address) if isinstance(address, str | os.PathLike) else []
    return len(parts) > 1 and any(map(is_object_address, parts))


def is_in_storage(address: object) -> bool:
    """Return whether a text names a folder in object storage, or several folders of which at least one is."""
    return is_object_address(address) or are_several_objects(address)


def is_object_address(address: object) -> bool:
    """Return whether a text is meant to name a folder in object storage. The address may still be malformed, which `parse`
    reports.
    """
    if not isinstance(address, str | os.PathLike) or len(_parts(os.fspath(address))) > 1:
        return False
    match = _ADDRESS.fullmatch(os.fspath(address))
    return match is not None and match[1].lower() in OBJECT_SCHEMES


def parse(address: str | os.PathLike[str]) -> Place:
    """Return an address's parts. Raises InvalidArgumentError for a malformed address."""
    text = os.fspath(address)
    match = _ADDRESS.fullmatch(text)
    service = None if match is None else OBJECT_SCHEMES.get(match[1].lower())
    if match is None or service is None:
        text = without_keys(text)
        scheme = text if match is None else match[1]
        raise InvalidArgumentError(
            f"unknown kind of object storage{did_you_mean(scheme, OBJECT_SCHEMES)}", found=text, expected=_EXPECTED
        )
    scheme = match[1].lower()
    bucket, _, prefix = match[3].partition("/")
    is_bucket = re.fullmatch(_HOST if service == "hdfs" else _BUCKET, bucket) is not None
    if not is_bucket:
        text = without_keys(text)
        match = _ADDRESS.fullmatch(text) or match
    if match[2] != "//" or text[0].isspace():
        right = f"{scheme}://{match[3]}" if match[3] else _EXAMPLES[service]
        raise InvalidArgumentError(f"not an address (did you mean {right}?)", found=text, expected=_EXAMPLES[service])
    if not is_bucket:
        what = "the address has no bucket" if not bucket else "invalid bucket name"
        if HIDDEN in match[3]:
            what = "an address must not contain access keys: pass them as options or in the environment"
        raise InvalidArgumentError(what, found=text, expected=_EXAMPLES[service])
    return Place(service, scheme, bucket, prefix.strip("/"))


def with_options(address: str | os.PathLike[str], options: Mapping[str, object], part: str | None = None) -> str:
    """Return an address, or several addresses in one text, with options. If only a part of the address is in object storage,
    `part` is that part.

    Raises InvalidArgumentError for an unknown option. The error does not show the option's value.
    """
    from tidelog.objects.settings import named_options

    return ObjectAddress(os.fspath(address), named_options(options, service_of(part or address)))


def service_of(address: str | os.PathLike[str]) -> str:
    """Return the service of an address, or of the first of several addresses. Raises InvalidArgumentError for a malformed
    address.
    """
    return parse(next(filter(is_object_address, addresses_in(address)), address)).service


def options_of(address: object) -> Mapping[str, str]:
    """Return the options that an address carries."""
    return address.options if isinstance(address, ObjectAddress) else {}


_EXAMPLES = {
    "s3": "s3://bucket/prefix",
    "gs": "gs://bucket/prefix",
    "abfs": "abfs://container@account.dfs.core.windows.net/prefix",
    "hdfs": "hdfs://host:8020/path",
}
_EXPECTED = ", ".join(_EXAMPLES.values())
