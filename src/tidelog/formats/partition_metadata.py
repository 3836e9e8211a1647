"""``partition.metadata``: the id of the topic that a partition's folder belongs to (KIP-516; spec §7).

Exactly two lines and no newline at the end::

    version: 0
    topic_id: 8bHAiWzVQAKqTq3mJqq5sQ

The id is a UUID's 16 bytes as URL-safe base64 without padding.
"""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from functools import lru_cache
from pathlib import Path

from tidelog.errors import CorruptCheckpointError, StorageError
from tidelog.formats.checkpoints import parse_number, replace_file
from tidelog.formats.files import read_whole
from tidelog.formats.paths.file_path import FilePath

VERSION = 0
_ZERO = uuid.UUID(int=0)
_USUAL = re.compile(r"version: 0\ntopic_id: ([A-Za-z0-9_-]{22})\n?")


def read_topic_id(path: FilePath) -> uuid.UUID | None:
    """Return the topic's id, None if there is no file (Kafka before 2.8). Raises CorruptCheckpointError."""
    try:
        text = read_whole(path).decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise CorruptCheckpointError("partition.metadata is not UTF-8", path=path, position=error.start) from None
    except OSError as error:
        raise StorageError(f"cannot read partition.metadata: {error.strerror}", path=path) from error
    known = _USUAL.fullmatch(text)
    topic_id = None if known is None else parse_topic_id(known[1])
    if topic_id is not None:
        return topic_id
    values = []
    for line, (key, content) in enumerate(zip(("version", "topic_id"), [*text.splitlines(), "", ""], strict=False), start=1):
        parts = re.split(r":\s+", content)
        if len(parts) != 2 or parts[0] != key:
            raise CorruptCheckpointError(
                f"line {line} of partition.metadata is invalid", path=path, found=repr(content), expected=f"{key}: …"
            )
        values.append(parts[1])
    version = parse_number(values[0], path, 1)
    if version < 0:
        raise CorruptCheckpointError("the version of partition.metadata is invalid", path=path, found=version, expected=">= 0")
    topic_id = parse_topic_id(values[1])
    if topic_id is None:
        raise CorruptCheckpointError(
            "line 2 has an invalid topic id", path=path, found=repr(values[1]), expected="16 bytes in base64, not all zero"
        )
    return topic_id


def write_topic_id(path: Path, topic_id: uuid.UUID) -> None:
    """Replace the file."""
    replace_file(path, encode_topic_id(topic_id))


def encode_topic_id(topic_id: uuid.UUID) -> bytes:
    """Return the file's content."""
    return f"version: {VERSION}\ntopic_id: {format_topic_id(topic_id)}".encode()


@lru_cache(maxsize=1024)  # All partitions of a topic have the same id.
def parse_topic_id(text: str) -> uuid.UUID | None:
    """Parse an id as Kafka writes it. Return None for any other text, and for the zero id, which no topic has."""
    try:
        raw = base64.b64decode(text.rstrip("=") + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(raw) != 16:
        return None
    topic_id = uuid.UUID(bytes=raw)
    return None if topic_id == _ZERO else topic_id


def format_topic_id(topic_id: uuid.UUID) -> str:
    """Return an id as Kafka writes it: 22 characters."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
