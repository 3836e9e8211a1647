"""Writes committed offsets into `__consumer_offsets` of a data folder that has none, as a group coordinator would."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from tidelog.clock import Clock
from tidelog.groups.offset_records import offset_entry
from tidelog.groups.offsets_topic import partition_of
from tidelog.model import OFFSETS_TOPIC
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.restore.moment import Positions
from tidelog.storage.topics.new_topic import LEADER_EPOCH, NewTopic

PARTITIONS = 50
"""The number of partitions of `__consumer_offsets`: Kafka's default."""

SETTINGS = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}


def write_groups(folder: Path, positions: Positions, clock: Clock) -> None:
    """Write the committed offsets. Raises TopicExistsError if the folder has `__consumer_offsets`, StorageError."""
    by_partition: dict[int, list[tuple[bytes, bytes | None]]] = defaultdict(list)
    for group, offsets in positions.items():
        for key, committed in offsets.items():
            by_partition[partition_of(group, PARTITIONS)].append(offset_entry(group, key, committed))
    now_ms = clock.now_ms()
    with NewTopic(folder, OFFSETS_TOPIC, PARTITIONS, SETTINGS, clock) as new:
        for partition, entries in sorted(by_partition.items()):
            log = new.logs[partition]
            for first in range(0, len(entries), 1000):
                records = [
                    Record(number, now_ms, CREATE_TIME, key, value)
                    for number, (key, value) in enumerate(entries[first : first + 1000], log.log_end_offset)
                ]
                log.append_as_leader(bytes(build_batch_v2(records, leader_epoch=LEADER_EPOCH)), LEADER_EPOCH)
        new.commit()
