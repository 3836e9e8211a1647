"""``metadata.version``: the levels, and the record versions that each allows (KIP-584, KIP-778).

| level | release | since then |
|---|---|---|
| 7 | 3.3-IV3 | registrations state whether a broker is shutting down |
| 8 | 3.4-IV0 | and whether it is migrating from ZooKeeper |
| 17 | 3.7-IV2 | partitions name the log directories of their replicas (KIP-858) |
| 21 | 3.9-IV0 | the newest of Kafka 3.9.1 |
| 23 | 4.0-IV1 | partitions name eligible leader replicas (KIP-966) |
| 30 | 4.3-IV0 | registrations name the log directories that get no new replicas (KIP-1066) |
| 33 | 4.4-IV2 | the newest of Kafka 4.4.0 |

For levels newer than the table, the table's newest versions are written: Kafka reads all versions of a record at any level.
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
"""The metadata.version that Kafka 3.9.1 formats a folder with; 4.x reads it."""
FEATURES_3_9 = {"kraft.version": (0, 1), METADATA_VERSION: (1, LEVEL_3_9)}
"""The features that Kafka 3.9.1 supports, with their lowest and highest levels."""
SCRAM_LEVEL = 11
"""3.5-IV2: from then on users' SCRAM credentials are kept in the metadata (KIP-900)."""
DIRECTORIES_LEVEL = 17
"""3.7-IV2: from then on partitions name the log directories of their replicas (KIP-858)."""
KNOWN_LEVELS = range(1, 34)
"""The levels that a broker may announce as supported: `records` has everything that controllers write at them."""

_FIRST_LEVELS: dict[type[Message], tuple[int, ...]] = {
    RegisterBrokerRecord: (7, 8, 17, 30),
    BrokerRegistrationChangeRecord: (7, 17, 30),
    PartitionRecord: (17, 23),
    PartitionChangeRecord: (17, 23),
}
"""The levels at which a record's versions 1, 2, ... begin."""


def record_version(cls: type[Message], level: int) -> int:
    """Return the version in which a record is written at a level of ``metadata.version``."""
    return sum(level >= first for first in _FIRST_LEVELS.get(cls, ()))
