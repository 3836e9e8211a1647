"""Reprocess the last days, then continue live, without gaps or duplicates: a cut, the history before the cut, and the stream from
the cut.

    cut = take_cut("localhost:9092", ["orders"], "-3d")
    cut.save("orders.cut.json")
    history = cut.history(spark)        # a batch: timestamp >= three days ago, offset < cut
    live = cut.stream(spark)            # a stream: offset >= cut

| fixed in the cut | | how |
|---|---|---|
| the cut of each partition | its last stable offset | one ListOffsets; for a folder, its files and high-watermark checkpoint |
| the start of its history | the offset of the first record at or after `start` | ListOffsets by time; for a folder, its files |
| `start` | epoch ms: `-3d` means the same three days whenever the history is read | |
| topics | their ids, if the brokers report them: a recreated topic is an error | |

Every transaction below a last stable offset is complete. The history therefore contains the committed records below the cut, and
the stream the committed records from the cut on. A transaction that was open at the cut is entirely in the stream if it commits.
A record that arrives after the cut belongs to the stream, even if its timestamp is before `start`. With `since_start=True`, the
stream leaves out such records, so that history and stream together are all committed records with timestamp >= start. Partitions
added after the cut are read from their start.

If retention deletes records of the history before they are read, that is an error, as in every read.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.client.connections.addresses import config_of, with_config
from tidelog.clock import Clock, SystemClock
from tidelog.errors import (
    CorruptDataError,
    IncompleteLogWarning,
    InvalidArgumentError,
    NotFoundError,
    UnknownTopicOrPartitionError,
)
from tidelog.formats.json_files import read_json, understanding, write_json, write_new_json
from tidelog.model import EARLIEST, READ_COMMITTED, TopicPartition
from tidelog.reader.missing.missing_offsets import MissingOffsets
from tidelog.security.client_properties import client_properties
from tidelog.sources.opening import kind_of, open_source, settled
from tidelog.times import Time, format_time, parse_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Cut", "take_cut"]

VERSION = 1
_WHAT = "the file of a cut"

NO_ID = "00000000-0000-0000-0000-000000000000"

_OURS = ("path", "kafka.bootstrap.servers", "subscribe", "subscribepattern", "assign", "isolationlevel", "starttime", "endtime")


@dataclass(frozen=True, slots=True)
class Cut:
    """The boundary between history and stream in each partition."""

    source: str
    """A data folder, or bootstrap servers."""
    start_ms: int | None
    """The start time of the history in epoch ms; None if the history is all records below the cut."""
    taken_ms: int
    starts: Mapping[TopicPartition, int]
    """The first offset of the history in each partition. If the history is empty, it equals the cut."""
    cuts: Mapping[TopicPartition, int]
    """The cut of each partition: the end of the history, exclusive, and the first offset of the stream."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def topics(self) -> tuple[str, ...]:
        """Return the names of the topics, sorted."""
        return tuple(sorted({key.topic for key in self.cuts}))

    def __str__(self) -> str:
        since = "the start" if self.start_ms is None else format_time(self.start_ms)
        return f"{', '.join(self.topics)} of {self.source} from {since}, cut {format_time(self.taken_ms)}"

    # --- Kept ---

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the cut to a file atomically. Raises StorageError."""
        write_json(Path(path), VERSION, self._content(), indent=1)

    def save_new(self, path: str | os.PathLike[str]) -> bool:
        """Write the cut to a new file. If the file exists, return False and leave it unchanged. Raises StorageError."""
        return write_new_json(Path(path), VERSION, self._content(), indent=1)

    def _content(self) -> dict[str, object]:
        return {
            "source": str(self.source),
            "start_ms": self.start_ms,
            "taken_ms": self.taken_ms,
            "topic_ids": dict(self.topic_ids),
            "start_offsets": _by_topic(self.starts),
            "cut_offsets": _by_topic(self.cuts),
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, config: Mapping[str, object] | None = None) -> Cut:
        """Read a cut from a file. `config` is the client configuration for the cut's brokers, which the file does not contain.
        Raises NotFoundError, CorruptDataError, StorageError, InvalidArgumentError.
        """
        found = read_json(Path(path), VERSION, _WHAT)
        if found is None:
            raise NotFoundError("no such cut", path=path)
        with understanding(Path(path), _WHAT):
            starts, cuts = _by_partition(found["start_offsets"]), _by_partition(found["cut_offsets"])
            if starts.keys() != cuts.keys() or any(not 0 <= starts[key] <= cuts[key] for key in cuts):
                raise CorruptDataError("the start offsets and cut offsets do not match", path=path)
            start_ms = None if found["start_ms"] is None else int(found["start_ms"])
            source = str(found["source"]) if config is None else with_config(str(found["source"]), config)
            return cls(source, start_ms, int(found["taken_ms"]), starts, cuts, dict(found["topic_ids"]))

    # --- Used ---

    def history_options(self, source: str | None = None) -> dict[str, str]:
        """Return the options of `spark.read.format("tidelog")` that read the history from the cut's source, or from `source` if
        given.
        """
        options = {
            **_place(source or self.source),
            "assign": json.dumps({topic: sorted(numbers) for topic, numbers in _numbers(self.cuts).items()}),
            "startingOffsets": json.dumps(_by_topic(self.starts)),
            "endingOffsets": json.dumps(_by_topic(self.cuts)),
            "isolationLevel": READ_COMMITTED,
        }
        if self.start_ms is not None:
            options["startTime"] = str(self.start_ms)
        return options

    def stream_options(self, source: str | None = None, *, since_start: bool = False) -> dict[str, str]:
        """Return the options of `spark.readStream.format("tidelog")` that begin at the cut.

        Requests the current partitions from the source, because partitions may have been added. Raises
        UnknownTopicOrPartitionError for missing partitions, InvalidArgumentError for a recreated topic.
        """
        now = _partitions_now(source or self.source, self.topics)
        self._check_ids(now)
        starts = _by_topic(self.cuts)
        for topic, (_, numbers) in now.items():
            gone = sorted(set(map(int, starts[topic])) - set(numbers))
            if gone:
                raise UnknownTopicOrPartitionError(
                    f"partition {gone[0]} of topic {topic} has been deleted since the cut", path=self.source
                )
            for number in numbers:
                starts[topic].setdefault(str(number), EARLIEST)
        options = {
            **_place(source or self.source),
            "subscribe": ",".join(self.topics),
            "startingOffsets": json.dumps(starts),
            "isolationLevel": READ_COMMITTED,
        }
        if since_start and self.start_ms is not None:
            options["startTime"] = str(self.start_ms)
        return options

    def history(self, spark: SparkSession, *, source: str | None = None, **options: str) -> DataFrame:
        """Return the history as a DataFrame: committed records below the cut with `start <= timestamp`.

        `options` are further options of the Spark source, such as columns, includeHeaders, minPartitions or failOnDataLoss.
        `source` is a different source with the same offsets, such as a broker's data folder or a copy of it. Raises
        InvalidArgumentError.
        """
        _check_options(options)
        if source is None and kind_of(self.source).is_cluster:
            self._check_ids(_partitions_now(self.source, self.topics))
        return spark.read.format("tidelog").options(**(self.history_options(source) | options)).load()

    def stream(self, spark: SparkSession, *, source: str | None = None, since_start: bool = False, **options: str) -> DataFrame:
        """Return the stream that begins at the cut. A query that has a checkpoint continues from its checkpoint, as usual.

        `since_start` leaves out records that arrive after the cut with timestamps before the history's start. Raises what
        `stream_options` raises.
        """
        _check_options(options)
        given = self.stream_options(source, since_start=since_start) | options
        return spark.readStream.format("tidelog").options(**given).load()

    def _check_ids(self, now: Mapping[str, tuple[str, list[int]]]) -> None:
        for topic, (topic_id, _) in now.items():
            known = self.topic_ids.get(topic, NO_ID)
            if NO_ID not in (known, topic_id) and known != topic_id:
                raise InvalidArgumentError(
                    f"topic {topic} has been deleted and recreated since the cut",
                    path=self.source,
                    found=topic_id,
                    expected=known,
                )


def take_cut(
    source: str | os.PathLike[str],
    topics: Iterable[str],
    start: Time | None = None,
    *,
    clock: Clock | None = None,
    config: Mapping[str, object] | None = None,
) -> Cut:
    """Take a cut of topics in a data folder or on brokers. The cut includes where their history since `start` begins.

    Args:
        source: a data folder, or brokers as comma-separated `host:port`.
        topics: the topics' names.
        start: the start time of the history, in any form that `tidelog.times` accepts: epoch ms, `datetime`, or text such as
            `2013-07-10` or `-3d`. None: all records.
        clock: returns `now`; by default the system clock.
        config: Kafka client properties for the brokers. They are not saved with the cut.

    Raises:
        InvalidArgumentError, UnknownTopicOrPartitionError, BrokerUnreachableError, BrokerError
        UnsupportedForMessageFormatError: a time was given, but a folder's records have no timestamps.
    """
    names = [topics] if isinstance(topics, str) else list(dict.fromkeys(topics))
    if not names:
        raise InvalidArgumentError("a cut needs at least one topic")
    clock = SystemClock() if clock is None else clock
    taken_ms = clock.now_ms()
    start_ms = None if start is None else parse_time(start, clock, name="start")
    place = settled(source) if config is None else with_config(settled(source), config)
    with open_source(place) as opened:
        keys = [TopicPartition(name, number) for name in names for number in opened.partitions(name)]
        if start_ms is not None and opened.log_dir is not None:
            # This raises an error if a partition's records have no timestamps.
            opened.find(dict.fromkeys(keys, start_ms), READ_COMMITTED)
        found = opened.bounds(keys, start_ms, READ_COMMITTED)
        ids = {name: str(topic_id) for name, topic_id in opened.topic_ids(keys).items()} if opened.cluster is not None else {}
    cuts = {key: bounds.end_offset for key, bounds in found.items()}
    starts = {key: min(bounds.start_offset, bounds.end_offset) for key, bounds in found.items()}
    cut = Cut(place, start_ms, taken_ms, starts, cuts, ids)
    for missing in missing_of_cut(cut):
        warnings.warn(str(missing), IncompleteLogWarning, stacklevel=2)
    return cut


def missing_of_cut(cut: Cut, source: str | None = None) -> list[MissingOffsets]:
    """Return the offset ranges of the history that are missing from `source`, by default the cut's folder. If the history's start
    was found by time, ranges before that start are included, because they might be part of the history.

    Ranges after the cut are not returned, except the missing end of a log.
    """
    with open_source(cut.source if source is None else source) as opened:
        log_dir = opened.log_dir
        if log_dir is None:
            return []
        missing = [one for name in cut.topics for one in log_dir.missing_partitions(name)]
        for key, end in cut.cuts.items():
            with log_dir.log(*key) as log:
                missing += [one for one in log_dir.missing_of(log) if one.first_offset < end or one.kind == "end"]
    return missing


def _partitions_now(source: str, topics: Iterable[str]) -> dict[str, tuple[str, list[int]]]:
    """Return each topic's partitions, and its topic id if the source knows the id."""
    with open_source(source) as opened:
        numbers = {name: opened.partitions(name) for name in topics}
        keys = [TopicPartition(name, number) for name, each in numbers.items() for number in each]
        ids = opened.topic_ids(keys) if opened.cluster is not None else {}
    return {name: (str(ids.get(name, NO_ID)), each) for name, each in numbers.items()}


def _place(source: str) -> dict[str, str]:
    if not kind_of(source).is_cluster:
        return {"path": source}
    security = client_properties(config_of(source))
    return {"kafka.bootstrap.servers": str(source)} | {f"kafka.{name}": value for name, value in security.items()}


def _check_options(options: Mapping[str, str]) -> None:
    for name in options:
        if name.lower() in _OURS or name.lower().startswith(("starting", "ending")):
            raise InvalidArgumentError(f"option {name} is set by the cut: leave it out")


def _numbers(offsets: Mapping[TopicPartition, int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for key in offsets:
        found.setdefault(key.topic, []).append(key.partition)
    return found


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets in the JSON form of Spark's Kafka connector: topic → partition → offset."""
    found: dict[str, dict[str, int]] = {}
    for key in sorted(offsets):
        found.setdefault(key.topic, {})[str(key.partition)] = offsets[key]
    return found


def _by_partition(offsets: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, int(number)): int(at) for topic, each in offsets.items() for number, at in each.items()}
