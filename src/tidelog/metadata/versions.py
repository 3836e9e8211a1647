"""``metadata.version``: the levels, and the record versions that each allows (KIP-584, KIP-778).

| level | release | what it adds |
|---|---|---|
| 7 | 3.3-IV3 | registrations state whether a broker is shutting down |
| 8 | 3.4-IV0 | registrations state whether a broker is migrating from ZooKeeper |
| 17 | 3.7-IV2 | partitions name the log directories of their replicas (KIP-858) |
| 21 | 3.9-IV0 | the newest level of Kafka 3.9.1 |
| 23 | 4.0-IV1 | partitions name eligible leader replicas (KIP-966) |
| 30 | 4.3-IV0 | registrations name the log directories that get no new replicas (KIP-1066) |
| 33 | 4.4-IV2 | the newest level of Kafka 4.4.0 |

At levels newer than the table, the table's newest versions are written. Kafka reads all versions of a record at any level.
"""

from __future__ import annotations

from tidelog.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from tidelog.wire.fields import Message

METADATA_VERSION = "metadata.version"
LEVEL_3_9 = 21
"""The metadata.version with which Kafka 3.9.1 formats a folder; Kafka 4.x reads such folders."""
FEATURES_3_9 = {"kraft.version": (0, 1), METADATA_VERSION: (1, LEVEL_3_9)}
"""The features that Kafka 3.9.1 supports, with their lowest and highest levels."""
SCRAM_LEVEL = 11
"""3.5-IV2: the first level at which users' SCRAM credentials are kept in the metadata (KIP-900)."""
DIRECTORIES_LEVEL = 17
"""3.7-IV2: the first level at which partitions name the log directories of their replicas (KIP-858)."""
KNOWN_LEVELS = range(1, 34)
"""The levels that a broker may announce as supported: `records` has everything that controllers write at these levels."""

_FIRST_LEVELS: dict[type[Message], tuple[int, ...]] = {
    RegisterBrokerRecord: (7, 8, 17, 30),
    BrokerRegistrationChangeRecord: (7, 17, 30),
    PartitionRecord: (17, 23),
    PartitionChangeRecord: (17, 23),
}
"""For each record, the first levels at which its versions 1, 2, ... are written."""


def record_version(cls: type[Message], level: int) -> int:
    """Return the version in which a record is written at a level of ``metadata.version``."""
    return sum(level >= first for first in _FIRST_LEVELS.get(cls, ()))
