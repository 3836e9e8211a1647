"""The names of a backup's objects, below its address. Every object is written once and never changed.

| name | is |
|---|---|
| ``tidelog-backup.json`` | marks a backup, and has the format's version |
| ``points/<sequence>-<time>.json`` | a point, written after everything that it needs |
| ``seals/<sequence>-<SHA-256 of the point>`` | written after the point; shows that a point is missing |
| ``expired/<sequence>`` | all points before this one were removed on purpose |
| ``manifests/<xx>/<SHA-256>.json.gz`` | catalogs, topics, partitions, pages of segments, rights |
| ``data/<topic id>/<partition>/<offset>-<SHA-256, 16 digits>.log`` | a piece of a segment; ``.index``, … beside it |
| ``data/<topic id>/<partition>/<offset>-<SHA-256, 16 digits>.snapshot`` | the producer state before an offset |

A point's time is the time of its cut, in UTC, to the second. Sequences begin at 1.
"""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from typing import NamedTuple

from tidelog.formats import names

FORMAT = "tidelog-backup"
VERSION = 1

SCHEME = "backup:"
"""The scheme of the address of a point."""

HEAD = "tidelog-backup.json"
POINTS = "points"
SEALS = "seals"
EXPIRED = "expired"
EXPIRED_CONTENT = b"\n"
MANIFESTS = "manifests"
DATA = "data"

FILE_SUFFIXES = (names.LOG_SUFFIX, names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX)
"""The suffixes of the files that a piece may have. Every piece has a ``.log``."""

INDEX_INTERVAL_BYTES = 4096
"""A piece with indexes has an entry for its first batch, and for the first batch after every interval."""

# Compiled on use: readers of any folder load this module.
_POINT = rf"{POINTS}/(\d{{8,}})-(\d{{8}}T\d{{6}}Z)\.json"
_SEAL = rf"{SEALS}/(\d{{8,}})-([0-9a-f]{{64}})"
_EXPIRED = rf"{EXPIRED}/(\d{{8,}})"
_WITHOUT_ID = uuid.UUID("6f1b6a53-0f57-4b0e-8f0a-5d0f3b0d7c11")
_TIME = "%Y%m%dT%H%M%SZ"


class PointName(NamedTuple):
    """The sequence and time in the name of a point's object."""

    sequence: int
    time_ms: int
    """When the cut was taken, to the second."""

    @property
    def key(self) -> str:
        """The object's name."""
        time = datetime.fromtimestamp(self.time_ms // 1000, UTC).strftime(_TIME)
        return f"{POINTS}/{self.sequence:08d}-{time}.json"


class Seal(NamedTuple):
    """The sequence and checksum in the name of a seal."""

    sequence: int
    sha256: str

    @property
    def key(self) -> str:
        """The object's name."""
        return f"{SEALS}/{self.sequence:08d}-{self.sha256}"


def parse_point(key: str) -> PointName | None:
    """Parse the name of a point's object. Return None for any other name."""
    match = re.fullmatch(_POINT, key)
    if match is None:
        return None
    try:
        time = datetime.strptime(match[2], _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
    return PointName(int(match[1]), int(time.timestamp()) * 1000)


def parse_seal(key: str) -> Seal | None:
    """Parse the name of a seal. Return None for any other name."""
    match = re.fullmatch(_SEAL, key)
    return None if match is None else Seal(int(match[1]), match[2])


def expired_key(before: int) -> str:
    """Return the name of the object that marks all points before a sequence as expired."""
    return f"{EXPIRED}/{before:08d}"


def parse_expired(key: str) -> int | None:
    """Parse a name that `expired_key` returns. Return the sequence, or None for any other name."""
    match = re.fullmatch(_EXPIRED, key)
    return None if match is None else int(match[1])


def manifest_key(sha256: str) -> str:
    """Return the name of a manifest."""
    return f"{MANIFESTS}/{sha256[:2]}/{sha256}.json.gz"


def data_key(topic_id: uuid.UUID, partition: int, stem: str, suffix: str) -> str:
    """Return the name of a piece's ``.log``, or of a file that belongs to the piece."""
    return f"{DATA}/{topic_id}/{partition}/{stem}{suffix}"


def assumed_topic_id(name: str) -> uuid.UUID:
    """Return the id that the backup uses for a topic without an id: a UUID of version 5, which Kafka never creates."""
    return uuid.uuid5(_WITHOUT_ID, name)


def known_topic_id(topic_id: uuid.UUID) -> uuid.UUID | None:
    """Return a topic's id in the cluster, or None if the topic had no id there."""
    return None if topic_id.version == 5 else topic_id


def data_stem(offset: int, sha256: str) -> str:
    """Return the name of a piece's files, or of a snapshot, without the suffix. It contains part of the SHA-256 of the piece's
    ``.log`` or of the snapshot.
    """
    return f"{offset:020d}-{sha256[:16]}"
