"""Writes to a data folder: whole segments, committed by a rename (`tidelog.storage.folder.staged_write`).

| | |
|---|---|
| tasks | build batches; from the folder they read only the number of a topic's partitions |
| the driver | creates missing topics, as `tidelog import` does; stages and commits the batches |
| a replay | is recognized by what the last commit stored under the query's transactional id |
| a running broker | holds the folder's lock, so the write fails |

A topic that was created remains if the write fails. Tasks and driver must see the folder under the same path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tidelog.clock import Clock, SystemClock
from tidelog.model import TopicPartition
from tidelog.spark.sink.epochs import Epoch, is_replay, parse_epoch
from tidelog.spark.sink.sink_options import SinkOptions
from tidelog.spark.sink.spool import SpooledBatches
from tidelog.storage.folder.data_folder import check_is_data_folder, create, list_contents
from tidelog.storage.folder.staged_write import StagedWrite, writers_turn
from tidelog.storage.topics.new_topic import NewTopic


@contextmanager
def partition_counts(options: SinkOptions) -> Iterator[Callable[[str], int]]:
    """In a task: provide a function that returns a topic's number of partitions. For a missing topic, it is the number with which
    the topic will be created. Raises StorageError.
    """
    counts = _partition_counts(_directory(options))
    yield lambda topic: counts.get(topic, options.partitions)


def commit_to_folder(
    options: SinkOptions, spooled: Sequence[SpooledBatches], batch_id: int | None, clock: Clock | None = None
) -> None:
    """On the driver: write everything atomically. If the query has already committed this batch, write nothing.

    Raises StorageError if another process holds the folder's lock or it is not a data folder, UnknownTopicOrPartitionError for an
    unknown partition, InvalidArgumentError if the query's checkpoint is older than the folder's data, and what appending raises.
    """
    clock = clock or SystemClock()
    directory = _directory(options)
    keys = sorted({key for one in spooled for key in one.keys})
    _create_topics(options, directory, keys, clock)
    epoch = None if batch_id is None or options.query_id is None else Epoch(options.query_id, batch_id)
    with StagedWrite(directory, clock, writer=None if epoch is None else options.transactional_id) as write:
        if epoch is not None and is_replay(parse_epoch(write.note or ""), epoch, options.place):
            return
        write.begin(keys)
        for one in spooled:
            for key, batch in one.batches():
                write.append(key, batch)
        write.commit(None if epoch is None else epoch.to_json())


def _directory(options: SinkOptions) -> Path:
    assert options.path is not None
    return Path(options.path)


def _partition_counts(directory: Path) -> dict[str, int]:
    if not directory.is_dir():
        return {}
    counts: dict[str, int] = {}
    for topic, partition in list_contents(directory).partitions:
        counts[topic] = max(counts.get(topic, 0), partition + 1)
    return counts


def _create_topics(options: SinkOptions, directory: Path, keys: Iterable[TopicPartition], clock: Clock) -> None:
    topics = {key.topic for key in keys}
    if topics <= _partition_counts(directory).keys():
        return
    check_is_data_folder(directory)
    create(directory)
    with writers_turn(directory):
        there = _partition_counts(directory)
        properties = {"retention.ms": "-1", **options.topic_properties}
        for topic in sorted(topics - there.keys()):
            with NewTopic(directory, topic, options.partitions, properties, clock) as new:
                new.commit()
