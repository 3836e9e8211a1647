"""``inter.broker.protocol.version``: the Kafka release whose protocol the brokers of a ZooKeeper cluster use with each other.

In a rolling upgrade new brokers first use the old protocol, then all brokers switch to the new one. Therefore this property
decides the followers' fetch version, the format of the registration, and how the ISR is changed, even if both sides support newer
versions.

| from | |
|---|---|
| 0.9.0 | Fetch 1, ListOffsets 0; followers truncate to their high watermark; ISR changes through ZooKeeper |
| 0.10.0-IV0 | Fetch 2: message format v1 |
| 0.10.0-IV1 | registration with listener names, which 0.9 could not read |
| 0.10.1-IV1, -IV2 | Fetch 3; ListOffsets 1: by timestamp |
| 0.11.0-IV0, -IV1, -IV2 | Fetch 4, 5: message format v2; followers truncate by leader epochs |
| 1.1-IV0 | Fetch 7: fetch sessions |
| 2.1, 2.3 | records of groups and their offsets in newer versions |
| 2.2-IV0 | requests contain the broker epoch |
| 2.7-IV2 | ISR changes through AlterPartition |
| 2.8-IV0 | topics have ids |
| 3.0-IV1 | the message format is always v2 |
| 3.1-IV0 | Fetch 13: topics by id |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from tidelog.errors import InvalidArgumentError

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.\d+|\.[Xx])?(?:-IV(\d+))?")
_NEWEST = 1 << 15
"""The step number of a version without "-IV…": the last step of its release."""

FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, WRITE_TXN_MARKERS = 1, 2, 23, 27
"""The API keys of the requests that brokers send to each other."""

_FETCH = (
    ("3.9-IV0", 17),
    ("3.7-IV4", 16),
    ("3.5-IV1", 15),
    ("3.5-IV0", 14),
    ("3.1-IV0", 13),
    ("2.7-IV1", 12),
    ("2.3-IV1", 11),
    ("2.1-IV2", 10),
    ("2.0-IV1", 8),
    ("1.1-IV0", 7),
    ("0.11.0-IV1", 5),
    ("0.11.0-IV0", 4),
    ("0.10.1-IV1", 3),
    ("0.10.0-IV0", 2),
    ("0.9.0", 1),
)
_LIST_OFFSETS = (
    ("3.5-IV0", 8),
    ("3.0-IV1", 7),
    ("2.8-IV0", 6),
    ("2.2-IV1", 5),
    ("2.1-IV1", 4),
    ("2.0-IV1", 3),
    ("0.11.0-IV0", 2),
    ("0.10.1-IV2", 1),
    ("0.9.0", 0),
)
_EPOCHS = (("2.8-IV0", 4), ("2.3-IV1", 3), ("2.1-IV1", 2), ("2.0-IV0", 1), ("0.11.0-IV2", 0))
_MARKERS = (("2.8-IV0", 1), ("0.11.0-IV0", 0))
_GROUP_VALUE = (("2.3-IV0", 3), ("2.1-IV0", 2), ("0.10.1-IV0", 1), ("0.9.0", 0))
_OFFSET_VALUE = (("2.1-IV1", 3), ("2.1-IV0", 2), ("0.9.0", 1))
_CONTROLLED_SHUTDOWN = (("2.4-IV1", 3), ("2.2-IV0", 2), ("0.9.0", 1))
_REGISTRATION = (("2.7-IV0", 5), ("0.10.0-IV1", 4), ("0.9.0", 2))

OLDEST, NEWEST = "0.9.0", "3.9"


class _Release(NamedTuple):
    major: int
    minor: int
    patch: int
    step: int


class ProtocolVersion:
    """A version of the inter-broker protocol. `text` has Kafka's form: "0.9.0", "0.10.1-IV2", "2.4", "3.9-IV0"."""

    def __init__(self, text: str) -> None:
        """Raise InvalidArgumentError for anything but a version from 0.9.0 to 3.9."""
        self.text = text.strip()
        self._release = _parsed(self.text)
        if not _parsed(OLDEST) <= self._release._replace(step=_NEWEST) <= _parsed(NEWEST):
            raise _unknown(text)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"ProtocolVersion({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProtocolVersion) and self._release == other._release

    def __hash__(self) -> int:
        return hash(self._release)

    def is_at_least(self, text: str) -> bool:
        """Whether this is the given version or a later one."""
        return self._release >= _parsed(text)

    @cached_property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The versions with which this broker calls other brokers, by API key: (version, version), as `Channel` expects."""
        rows = (
            (FETCH, _FETCH),
            (LIST_OFFSETS, _LIST_OFFSETS),
            (OFFSET_FOR_LEADER_EPOCH, _EPOCHS),
            (WRITE_TXN_MARKERS, _MARKERS),
        )
        found = ((key, self._first(table)) for key, table in rows)
        return {key: (version, version) for key, version in found if version is not None}

    @property
    def registration(self) -> int:
        """The version of the broker's znode."""
        return self._first(_REGISTRATION) or 2

    @property
    def controlled_shutdown(self) -> int:
        """The version of ControlledShutdown."""
        return self._first(_CONTROLLED_SHUTDOWN) or 1

    @property
    def group_value(self) -> int:
        """The value version of group metadata records in ``__consumer_offsets``."""
        return self._first(_GROUP_VALUE) or 0

    @property
    def offset_value(self) -> int:
        """The value version of the records of committed offsets in ``__consumer_offsets``."""
        return self._first(_OFFSET_VALUE) or 1

    @property
    def has_alter_partition(self) -> bool:
        """Whether the controller changes the ISR; otherwise the leader does, in ZooKeeper."""
        return self.is_at_least("2.7-IV2")

    @property
    def has_message_formats(self) -> bool:
        """Whether message.format.version has an effect; since 3.0, everything is written in format v2."""
        return not self.is_at_least("3.0-IV1")

    @property
    def newest_magic(self) -> int:
        """The newest message format that brokers with this protocol can fetch: 0, 1 or 2."""
        return 2 if self.is_at_least("0.11.0-IV0") else 1 if self.is_at_least("0.10.0-IV0") else 0

    @property
    def message_format(self) -> str:
        """The release for the default message format, in the form of message.format.version: without a bug-fix number."""
        return self.text[: -len(".X")] if self.text[-2:] in (".X", ".x") else self.text

    def _first(self, table: tuple[tuple[str, int], ...]) -> int | None:
        return next((version for since, version in table if self.is_at_least(since)), None)


def _parsed(text: str) -> _Release:
    match = _VERSION.fullmatch(text)
    if match is None:
        raise _unknown(text)
    major, minor = int(match[1]), int(match[2])
    # Up to 1.0 releases have three numbers; later the third is a bug-fix number, which does not change the protocol.
    patch = int(match[3] or 0) if major == 0 else 0
    return _Release(major, minor, patch, _NEWEST if match[4] is None else int(match[4]))


def _unknown(text: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        "inter.broker.protocol.version must be a release of Kafka", found=repr(text), expected=f"{OLDEST} to {NEWEST}"
    )
