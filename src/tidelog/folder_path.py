"""Converts a folder's address, a path or a `file:` URL, to a path.

| address | result |
|---|---|
| `/backup/kafka`, `logs`, `./host:9092` | the same path |
| `file:///backup/kafka`, `file:/backup/kafka` | the path `/backup/kafka`; percent-encoding such as `%20` is decoded |
| `s3://bucket/x`, `hdfs://…`, and any other scheme | an error; a local folder of that name is written `./s3:/bucket/x` |
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from tidelog.errors import InvalidArgumentError
from tidelog.near_names import did_you_mean

UNDERSTOOD = "a data folder (a path, file:///path or s3://bucket/prefix), or brokers (host:port)"

OBJECT_SCHEMES = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "abfs": "abfs",
    "abfss": "abfs",
    "az": "abfs",
    "hdfs": "hdfs",
}
"""The schemes of object storage, with their services: see `objects/address.py`."""

# `Path` collapses the two slashes of a URL into one.
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
HIDDEN = "***"
_FILE = re.compile(r"file:(?://(?:localhost)?(?=/))?(?=/(?!/))", re.IGNORECASE)


def folder_path(address: str | os.PathLike[str], expected: str = UNDERSTOOD) -> Path:
    """Return the path for a folder's address; the folder need not exist. Raises InvalidArgumentError for any other scheme."""
    text = os.fspath(address)
    match = SCHEME.match(text)
    if match is None:
        return Path(text)
    local = _FILE.match(text)
    if local is None:
        text = without_keys(text)
        meant = "" if match[1] in OBJECT_SCHEMES else did_you_mean(match[1], OBJECT_SCHEMES)
        raise InvalidArgumentError(f"{match[1]}:// addresses are not supported{meant}", found=text, expected=expected)
    from urllib.parse import unquote  # Imported here because the import takes a few milliseconds.

    return Path(unquote(text[local.end() :]))


def without_keys(address: str) -> str:
    """Return an address without the name and password that some tools put before the host, as in `s3://KEY:SECRET@bucket`."""
    return re.sub(r"(?<=:/)(/?)[^@]*:.*@", rf"\1{HIDDEN}@", address, flags=re.DOTALL)
