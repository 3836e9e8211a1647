"""A client for any Kafka-compatible broker. It looks up offsets for times, produces with timestamps, and reads from a time.

Its calls block. It is not thread-safe. It cannot join a group, keeps no positions, and commits nothing except through
`reset_group`. `docs/client.md` has examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple

from tidelog.client.connections.addresses import with_config
from tidelog.client.connections.cluster import TIMEOUT_MS, Cluster, PartitionState
from tidelog.client.produce.appender import BATCH_BYTES, Appender, Produced
from tidelog.client.reading.offsets import NotFound, OffsetAnswer, list_offsets
from tidelog.client.reading.partition_bounds import bounds_for_times
from tidelog.client.reading.partition_fetcher import PartitionFetcher
from tidelog.clock import Clock, SystemClock
from tidelog.errors import InvalidArgumentError, ProtocolError
from tidelog.model import EARLIEST, LATEST, MAX_TIMESTAMP, Isolation, TopicPartition
from tidelog.records.batch import CREATE_TIME
from tidelog.records.compression import Codec
from tidelog.records.records import Bounds, Record, iter_records
from tidelog.times import Time, format_time, parse_time

if TYPE_CHECKING:
    from tidelog.client.consumer_groups.group_lag import GroupLag
    from tidelog.client.consumer_groups.group_reset import PartitionReset, ToOffset
    from tidelog.groups.description import GroupListing

CLIENT_ID = "tidelog"

CodecName = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Headers = Iterable[tuple[str, bytes | None]]


class NewRecord(NamedTuple):
    """A record to produce. `timestamp` is in any form of `tidelog.times`; None means the current time. If `partition` is None,
    `Client.produce_many` chooses it.
    """

    value: bytes | None
    key: bytes | None = None
    timestamp: Time | None = None
    headers: Headers = ()
    partition: int | None = None


class ReadRecord(NamedTuple):
    """A record read. `timestamp` is in epoch ms, -1 for none. `timestamp_type` is -1 for none, 0 for CreateTime, 1 for
    LogAppendTime.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Client:
    """The client of one cluster: topics, offsets for times, produce, read and groups. `tidelog.connect` creates it.

    Every call may raise BrokerUnreachableError, BrokerError, ProtocolError.
    """

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self.cluster = cluster
        self._clock = clock
        self._appender = Appender(cluster)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({str(self.cluster)!r})"

    def close(self) -> None:
        """Close all connections."""
        self.cluster.close()

    # --- Metadata ---

    def topics(self) -> dict[str, list[int]]:
        """Return the partition numbers of each topic, sorted, by topic name."""
        return {name: list(topic.partitions) for name, topic in self.cluster.topics().items()}

    def partitions(self, topic: str) -> dict[int, PartitionState]:
        """Return a topic's partitions, with their current leaders and replicas. Raises UnknownTopicOrPartitionError."""
        return dict(self.cluster.topic_now(topic).partitions)

    # --- Offsets ---

    def offsets_for_times(
        self, times: Mapping[tuple[str, int], Time], isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, OffsetAnswer]:
        """Return, for each partition, the offset of the first record whose timestamp is the given time or later.

        The answer is a `FoundOffset`, or a `NotFound`, which is falsy and gives the reason. `tidelog.times` lists the forms of a
        time; negative times are refused, because Kafka gives them special meanings (`earliest_offsets`).

        Raises:
            InvalidArgumentError: an invalid time.
            UnknownTopicOrPartitionError
            UnsupportedVersionError: the broker is too old.
        """
        return list_offsets(
            self.cluster, {TopicPartition(*key): parse_time(time, self._clock) for key, time in times.items()}, isolation
        )

    def earliest_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return each partition's log start offset."""
        return self._ends(partitions, EARLIEST, "read_uncommitted")

    def latest_offsets(
        self, partitions: Iterable[tuple[str, int]], isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        """Return each partition's high watermark, or its last stable offset for read_committed."""
        return self._ends(partitions, LATEST, isolation)

    def max_timestamp_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, OffsetAnswer]:
        """Return the offset of each partition's record with the largest timestamp. Raises UnsupportedVersionError before
        Kafka 3.0.
        """
        return list_offsets(self.cluster, {TopicPartition(*key): MAX_TIMESTAMP for key in partitions})

    def _ends(self, partitions: Iterable[tuple[str, int]], target: int, isolation: Isolation) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for key, answer in list_offsets(self.cluster, {TopicPartition(*key): target for key in partitions}, isolation).items():
            if isinstance(answer, NotFound):
                raise ProtocolError(
                    "the broker returned no end offset for a partition",
                    path=str(self.cluster),
                    found=f"{key.topic}-{key.partition}",
                )
            found[key] = answer.offset
        return found

    # --- Produce ---

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        timestamp: Time | None = None,
        headers: Headers = (),
        partition: int | None = None,
        compression: CodecName = "none",
    ) -> Produced:
        """Append one record, and return where it was stored, once all in-sync replicas have it. See `produce_many`."""
        (produced,) = self.produce_many(topic, [NewRecord(value, key, timestamp, headers, partition)], compression=compression)
        return produced

    def produce_many(
        self, topic: str, records: Iterable[NewRecord], *, compression: CodecName = "none", batch_bytes: int = BATCH_BYTES
    ) -> list[Produced]:
        """Append records, and return where each was stored, in their order, once all in-sync replicas have them.

        A record goes to its `partition` if that is set, otherwise to the partition given by Kafka's default hash of its key.
        Records with neither a partition nor a key all go to one partition; the next call uses the next partition. `batch_bytes`
        limits a batch before compression.

        Raises:
            InvalidArgumentError: an invalid time, codec or partition; nothing was sent.
            InvalidTimestampError, RecordValidationError: the broker refuses a batch; `record_errors` says why.
            RecordTooLargeError, UnknownTopicOrPartitionError, UnsupportedVersionError (headers need Kafka 0.11, zstd 2.1).
            Earlier batches, and those for other partitions, may have been appended.
        """
        try:
            codec = Codec[compression.upper()]
        except KeyError:
            names = ", ".join(codec.name.lower() for codec in Codec)
            raise InvalidArgumentError("unknown compression codec", found=repr(compression), expected=f"one of {names}") from None
        if batch_bytes < 1:
            raise InvalidArgumentError("batch_bytes must be positive", found=batch_bytes)
        self._appender.take_turns()
        return self._appender.append([self._placed(topic, record) for record in records], codec, batch_bytes)

    def _placed(self, topic: str, record: NewRecord) -> tuple[TopicPartition, Record]:
        for name, data in (("value", record.value), ("key", record.key), *record.headers):
            if data is not None and not isinstance(data, bytes | bytearray | memoryview):
                raise InvalidArgumentError(f"{name} must be bytes", found=type(data).__name__)
        timestamp = (
            self._clock.now_ms() if record.timestamp is None else parse_time(record.timestamp, self._clock, name="timestamp")
        )
        partition = record.partition
        if partition is None:
            partition = self._appender.partition_for(topic, record.key)
        elif partition < 0:
            raise InvalidArgumentError("the partition number is invalid", found=partition)
        else:
            self.cluster.topic(topic, create=True)
        made = Record(0, timestamp, CREATE_TIME, record.key, record.value, tuple(record.headers))
        return TopicPartition(topic, partition), made

    # --- Read ---

    def read(
        self,
        topic: str,
        *,
        from_time: Time | None = None,
        to_time: Time | None = None,
        partitions: Iterable[int] | None = None,
        isolation: Isolation = "read_uncommitted",
    ) -> Iterator[ReadRecord]:
        """Yield every record with `from_time <= timestamp < to_time`: one partition after another, each in offset order.

        Reads the records that exist at the time of the call, up to the high watermark (read_committed: the last stable offset).
        With a time bound, records without a timestamp are left out. docs/client.md says how much of the log must be read.

        Raises:
            InvalidArgumentError, UnknownTopicOrPartitionError, UnsupportedVersionError: by the call, before the first record.
            OffsetOutOfRangeError: retention deleted records before they were read; CorruptDataError: damaged batches.
        """
        start_ms = None if from_time is None else parse_time(from_time, self._clock, name="from_time")
        end_ms = None if to_time is None else parse_time(to_time, self._clock, start_ms=start_ms, name="to_time")
        if start_ms is not None and end_ms is not None and end_ms < start_ms:
            raise InvalidArgumentError(f"the range ends at {format_time(end_ms)}, before its start {format_time(start_ms)}")
        numbers = self.partitions(topic) if partitions is None else sorted(set(partitions))
        found = bounds_for_times(self.cluster, [TopicPartition(topic, number) for number in numbers], start_ms, isolation)
        return (
            record
            for key, held in found.items()
            for record in self._records(key, Bounds(start_ms, end_ms, held.start_offset, held.end_offset), isolation)
        )

    def _records(self, key: TopicPartition, bounds: Bounds, isolation: Isolation) -> Iterator[ReadRecord]:
        topic, partition = key
        place = f"{self.cluster} {topic}-{partition}"
        assert bounds.min_offset is not None
        fetcher = PartitionFetcher(self.cluster, key, bounds.min_offset, bounds.end_offset, isolation=isolation)
        for header, records, at in fetcher:
            for record in iter_records(header, records[at : at + header.size], path=place, bounds=bounds):
                yield ReadRecord(topic, partition, *record)

    # --- Groups ---

    def groups(self) -> list[GroupListing]:
        """Return the consumer groups that the brokers know, sorted by name."""
        from tidelog.client.consumer_groups.groups import list_groups

        return list_groups(self.cluster)

    def group_lag(self, group: str, *, isolation: Isolation = "read_committed", window_ms: int | None = None) -> GroupLag:
        """Return a group's lag in each partition, in records and in time; `tidelog.groups.lag` explains each number.

        Rates are averages over the last `window_ms`, ten minutes by default. An unknown group has the state `Dead`.

        Raises:
            InvalidArgumentError: the window is not positive.
            CorruptDataError
            UnsupportedVersionError: the broker is too old (before 0.10.2; before 0.11 for read_committed).
        """
        from tidelog.client.consumer_groups.group_lag import WINDOW_MS, group_lag

        window = WINDOW_MS if window_ms is None else window_ms
        if window < 1:
            raise InvalidArgumentError("window_ms must be positive", found=window_ms)
        return group_lag(self.cluster, group, self._clock, isolation=isolation, window_ms=window)

    def reset_group(
        self,
        group: str,
        to: Time | ToOffset,
        *,
        partitions: Iterable[tuple[str, int] | str] | None = None,
        isolation: Isolation = "read_committed",
        dry_run: bool = False,
    ) -> list[PartitionReset]:
        """Set the offsets of a group without members, and return the effect on each partition.

        `to` is a time (the first record at or after it, or the end of the log), `"earliest"`, `"latest"`, or a
        `tidelog.client.ToOffset`. `partitions` lists topics, or (topic, partition) pairs; by default all partitions with
        committed offsets. With `dry_run` nothing is changed.

        Raises:
            InvalidArgumentError, UnknownTopicOrPartitionError
            NotFoundError: there is nothing to reset.
            BrokerError: the group has members.
            UnsupportedForMessageFormatError: `to` is a time, but the records have no timestamps.
        """
        from tidelog.client.consumer_groups.group_reset import ToEnd, ToOffset, ToTime, apply_reset, plan_reset

        if isinstance(to, ToOffset):
            target: ToEnd | ToOffset | ToTime = to
        elif to in ("earliest", "latest"):
            target = ToEnd(to)
        else:
            target = ToTime(parse_time(to, self._clock, name="to"))
        wanted = None if partitions is None else [one if isinstance(one, str) else TopicPartition(*one) for one in partitions]
        planned = plan_reset(self.cluster, group, target, wanted, isolation)
        if not dry_run:
            apply_reset(self.cluster, group, planned)
        return planned


def connect(
    address: str,
    *,
    timeout_ms: int = TIMEOUT_MS,
    client_id: str = CLIENT_ID,
    clock: Clock | None = None,
    **config: object,
) -> Client:
    """Connect to a broker, `host:port`, or to a cluster by some of its brokers, `a:9092,b:9092`.

    Args:
        address: Kafka's bootstrap.servers.
        timeout_ms: how long one call may take, including retries while a leader is elected.
        client_id: the client id sent to brokers.
        clock: the clock for `now`, and for the timestamps of records produced without one. [default: the machine's clock]
        config: Kafka's client properties for the connection, such as `**{"security.protocol": "SASL_SSL"}`. A `_` in a keyword
            stands for a dot. `docs/client.md` lists the properties.

    Raises:
        InvalidArgumentError: an invalid address or property.
        BrokerUnreachableError: no broker answers. If all brokers refuse the connection, there is no retry.
        SecurityProtocolError, AuthenticationError: raised without a retry.
    """
    if timeout_ms < 1:
        raise InvalidArgumentError("timeout_ms must be positive", found=timeout_ms)
    if config:
        address = with_config(address, config)
    cluster = Cluster.at(address, client_id, timeout_ms=timeout_ms)
    return Client(cluster.reach(), SystemClock() if clock is None else clock)
