"""Kafka's concepts that all packages share: partitions, special offsets and times, isolation levels, topics. Each is defined only
here.

| name | meaning |
|---|---|
| `TopicPartition` | a partition of a topic |
| `Isolation` | whether a reader sees uncommitted transactions; `ISOLATION_LEVELS` has the numbers in the protocol |
| `LATEST` ... `LATEST_TIERED` | a position in a log that can be requested instead of a time (KIP-79, KIP-734, KIP-405) |
| `UNKNOWN_OFFSET`, `NO_TIMESTAMP`, `NO_LEADER_EPOCH` | -1: no offset, no time, no epoch |
| `INTERNAL_TOPICS` | topics that hold Kafka's own state; no client writes to them |
| `METADATA_TOPIC` | the log that holds a KRaft cluster's metadata; clients do not see it as a topic |
| `REMOTE_LOG_METADATA_TOPIC` | the topic that lists the segments in remote storage (KIP-405) |
| `KAFKAS_TOPICS` | all of these topics: their records are in Kafka's own formats |
| `is_hidden` | whether lists of topics leave a topic out unless it is requested |

This module has only values: no files, sockets or clocks. A name that only one package uses is defined in that package, such as
`storage.partition.watermarks.FetchIsolation`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from tidelog.errors import InvalidArgumentError

__all__ = [
    "EARLIEST",
    "EARLIEST_LOCAL",
    "INTERNAL_TOPICS",
    "ISOLATION_LEVELS",
    "LATEST",
    "LATEST_TIERED",
    "MAX_TIMESTAMP",
    "METADATA_TOPIC",
    "NO_LEADER_EPOCH",
    "NO_TIMESTAMP",
    "UNKNOWN_OFFSET",
    "Isolation",
    "TopicPartition",
]


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


def partitions_by_topic(keys: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Return the partitions' numbers by topic, in the order of `keys`."""
    numbers: dict[str, list[int]] = {}
    for topic, partition in keys:
        numbers.setdefault(topic, []).append(partition)
    return numbers


# --- offsets, times, epochs

MAX_OFFSET: Final = 2**63 - 1
UNKNOWN_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1

LATEST: Final = -1
"""Instead of a time: the end of the readable records. Instead of an offset: the log end."""
EARLIEST: Final = -2
"""Instead of a time or an offset: the log start."""
MAX_TIMESTAMP: Final = -3
"""Instead of a time: the record with the largest timestamp."""
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5

# --- what a reader sees of transactions

Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]

READ_UNCOMMITTED: Final = "read_uncommitted"
READ_COMMITTED: Final = "read_committed"

ISOLATION_LEVELS: Final[dict[Isolation, int]] = {READ_UNCOMMITTED: 0, READ_COMMITTED: 1}
"""The values of the field `isolation_level` in Fetch and ListOffsets (KIP-98)."""


def check_isolation(isolation: str) -> Isolation:
    """Return `isolation` if it is valid. Raises InvalidArgumentError otherwise, so that a misspelled level cannot show
    aborted records.
    """
    for level in get_args(Isolation):
        if level == isolation:
            return level  # type: ignore[no-any-return]
    raise InvalidArgumentError("unknown isolation level", found=repr(isolation), expected=" or ".join(get_args(Isolation)))


SIDES: Final = ("key", "value")
"""The parts of a record that can be decoded, each by its own decoder."""


# --- topics

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
SHARE_GROUPS_TOPIC: Final = "__share_group_state"
METADATA_TOPIC: Final = "__cluster_metadata"
REMOTE_LOG_METADATA_TOPIC: Final = "__remote_log_metadata"

INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_GROUPS_TOPIC})

KAFKAS_TOPICS: Final = INTERNAL_TOPICS | {METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC}


def is_hidden(topic: str) -> bool:
    """Whether lists of topics leave `topic` out unless it is requested: its name begins with two underscores, like the names of
    Kafka's internal topics and of many tools' topics.
    """
    return topic.startswith("__")


MAX_TOPIC_NAME_LENGTH: Final = 249
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def is_topic_name(name: str) -> bool:
    """Whether `name` is a valid topic name: 1 to 249 ASCII letters, digits, ``.``, ``_`` and ``-``; not ``.`` or ``..``."""
    return len(name) <= MAX_TOPIC_NAME_LENGTH and name not in (".", "..") and _TOPIC_NAME.fullmatch(name) is not None
