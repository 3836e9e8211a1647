"""The read options of `format("tidelog")`, and the checks that need no log.

Names and meanings are those of Spark's Kafka connector, so a job written for `format("kafka")` only needs the new format name,
and a `path` to read files. The time range, the columns and the isolation level are Tidelog's. Option names are case-insensitive,
as everywhere in Spark.

Checks here, as in the connector:

| rule | a batch | a stream (`stream.stream_options` has the rest) |
|---|---|---|
| exactly one of | `subscribe`, `subscribePattern`, `assign` | the same |
| precedence | `startingTimestamp` > `startingOffsetsByTimestamp` > `startingOffsets`; likewise for the end | then `startTime` |
| start | not `latest`, and no -1 in its JSON, because a batch ends at `latest` | anything; default `latest` |
| end | not `earliest`, and no -2 in its JSON | none: a stream never ends |
| start and end, if both by offset or both by time | must name the same partitions; no start after its end | |
| `startTime` | may be relative; resolved at once | must be absolute, so that a restarted stream starts at the same time |

Invariant: a `ReadOptions` is complete and consistent. Whether topics, partitions and offsets exist is checked in
`tidelog.spark.bounds`, which has access to the logs. Relative times (`now`, `-3d`) are resolved here, once. This module neither
imports PySpark nor accesses files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from tidelog.clock import Clock
from tidelog.errors import InvalidArgumentError
from tidelog.model import EARLIEST, LATEST, Isolation, TopicPartition
from tidelog.near_names import did_you_mean
from tidelog.sources import opening
from tidelog.sources.opening import Kind
from tidelog.spark.decode_options import DECODE_OPTIONS, OPTIONS_OF_SIDES, REGISTRY, DecodeOptions, parse_decode_options
from tidelog.spark.java_pattern import compile_java_pattern
from tidelog.spark.option_values import (
    BROKERS,
    CLIENT,
    INTEGER,
    TIME_ZONE,
    boolean,
    broker_addresses,
    check_topic,
    choice,
    folder,
    is_integer,
    is_of_connections,
    joined,
    json_object,
    ours_for,
    positive,
    time,
)
from tidelog.spark.storage_options import storage_options, with_storage
from tidelog.times import MAX_TIME_MS, doubtful_unit
from tidelog.zones import check_zone

OPTIONS: dict[str, str] = {
    "path": "the Kafka data folder (log.dirs) with the partitions' folders, or several, also in buckets; or a broker's host:port",
    "kafka.bootstrap.servers": "brokers to read from, if path is not set: host:port, or several separated by commas",
    "subscribe": "topics, separated by commas",
    "subscribePattern": "a Java regular expression to find in topic names",
    "assign": 'partitions as JSON, {"topicA": [0, 1], "topicB": [2]}',
    "startTime": "first time of an exact range: every record with startTime <= timestamp < endTime",
    "endTime": "end of that range, exclusive",
    "timeZone": "the time zone of startTime and endTime if they name none, e.g. Europe/Berlin; UTC by default",
    "startingOffsets": "earliest, or JSON with an offset for each partition (-2 earliest)",
    "endingOffsets": "latest, or JSON with an offset for each partition (-1 latest)",
    "startingTimestamp": "epoch ms: start at the first record at or after this time, in each partition",
    "endingTimestamp": "epoch ms: end at the first record at or after this time, in each partition",
    "startingOffsetsByTimestamp": "the same as JSON, epoch ms for each partition",
    "endingOffsetsByTimestamp": "the same as JSON, epoch ms for each partition",
    "startingOffsetsByTimestampStrategy": "error or latest: what to do if a partition has no match for the start",
    "includeHeaders": "true adds the column headers",
    "columns": "the columns to return, separated by commas; createTime is returned only if named",
    "isolationLevel": "read_uncommitted or read_committed",
    "minPartitions": "make at least this many splits",
    "tier": "the remote storage of the folder's tiered topics: a folder, or an address of object storage",
    "tierKey": "files of RSA private keys for encrypted segments of the tier, FILE or ID=FILE, separated by commas",
    "timeMapDir": "a folder of time maps, used before those beside the segments",
    "skipDamaged": "skip damaged batches and log them",
    "failOnDataLoss": "true: an offset outside the log is an error; false: read the remaining records",
} | DECODE_OPTIONS
"""All supported options, each with a one-line description."""

STREAM_OPTIONS: dict[str, str] = {
    "maxOffsetsPerTrigger": "the most offsets in a batch, over all partitions",
    "minOffsetsPerTrigger": "wait for at least this many offsets, but not longer than maxTriggerDelay",
    "maxTriggerDelay": "the longest wait for minOffsetsPerTrigger, e.g. 15m",
    "maxBytesPerTrigger": "the approximate limit of uncompressed bytes in a batch, e.g. 1g; unlimited for no limit",
    "maxTimePerTrigger": "the longest span of log time in a batch, e.g. 10m",
    "maxRecordsPerPartition": "the most offsets of a task",
}
"""Options that only streams have."""

BATCH_OPTIONS = ("endTime", "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
"""Options that only batches have."""

_IGNORED_EVERYWHERE = (
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
)

IGNORED = (*_IGNORED_EVERYWHERE, *STREAM_OPTIONS)
"""Options that have no effect and are accepted with a notice: options of streams, or of the connector's use of brokers."""

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers", "createTime")
"""All available columns, in the connector's order. Tidelog's additional column is last. Decoding adds further columns."""

_ISOLATION_OF_CLIENT = "kafka.isolation.level"
_PATHS = "paths"  # Spark's own name for the argument of load([...]).


@dataclass(frozen=True, slots=True)
class Bound:
    """Where each partition's range starts or ends: one value for all partitions, or a value for each partition.

    A value is an offset (or EARLIEST, LATEST), or epoch milliseconds if `by_time` is set. Errors name `option`.
    """

    option: str
    everywhere: int | None = None
    each: Mapping[TopicPartition, int] | None = None
    by_time: bool = False

    def of(self, partition: TopicPartition) -> int:
        if self.each is not None:
            return self.each[partition]
        assert self.everywhere is not None
        return self.everywhere


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a load, with defaults filled in. Exactly one of topics, pattern and assigned is set."""

    source: str
    """The address for `sources.opening`: a data folder, or bootstrap servers as `host:port`, separated by commas."""
    reads_files: bool
    """Whether the source's segment files are accessible."""
    topics: tuple[str, ...] | None
    pattern: str | None
    assigned: tuple[TopicPartition, ...] | None
    starting: Bound
    ending: Bound
    error_without_match: bool
    start_ms: int | None
    end_ms: int | None
    columns: tuple[str, ...]
    isolation: Isolation
    min_partitions: int | None
    fail_on_data_loss: bool
    time_map_dir: str | None
    skip_damaged: bool
    notices: tuple[str, ...]
    decode: DecodeOptions | None = None


def parse_options(options: Mapping[str, str], clock: Clock, *, is_stream: bool = False) -> ReadOptions:
    """Parse a load's options.

    Raises an InvalidArgumentError that names the option for any error in the options.
    """
    given = {key.lower(): value for key, value in options.items()}
    if _PATHS in given:
        given.setdefault("path", joined(given.pop(_PATHS)))
    keys = [one.strip() for one in given.get("tierkey", "").split(",") if one.strip()]
    if "tier" in given or keys:
        given["path"] = opening.tiered(given.get("path", "").strip(), given.get("tier"), keys)
    kind = _kind(given)
    notices = _refuse_unknown(given, kind, is_stream)
    subscription = _subscription(given)
    if is_stream:
        for name in BATCH_OPTIONS:
            if name.lower() in given:
                raise InvalidArgumentError(f"option {name}: a stream has no end; to read up to an end, use spark.read")
        clock = _NoClock()
    decode = parse_decode_options(given)
    starting = _bound(given, "starting", "startingOffsets", LATEST if is_stream else EARLIEST, is_stream=is_stream)
    ending = _bound(given, "ending", "endingOffsets", LATEST)
    _check_bounds(starting, ending)
    if TIME_ZONE.lower() in given:
        check_zone(given[TIME_ZONE.lower()], f"option {TIME_ZONE}")
    start_ms = time(given, "startTime", clock)
    end_ms = time(given, "endTime", clock, start_ms=start_ms)
    if start_ms is not None and end_ms is not None and start_ms > end_ms:
        raise InvalidArgumentError(f"option startTime ({given['starttime']}) is later than endTime ({given['endtime']})")
    if start_ms is not None and ending.by_time:  # All records below the resolved offset are older than the time.
        _check_bounds(Bound("startTime", everywhere=start_ms, by_time=True), ending)
    return ReadOptions(
        source=_source(given, kind),
        reads_files=kind.reads_files,
        topics=subscription[0],
        pattern=subscription[1],
        assigned=subscription[2],
        starting=starting,
        ending=ending,
        error_without_match=choice(given, "startingOffsetsByTimestampStrategy", ("error", "latest")) == "error",
        start_ms=start_ms,
        end_ms=end_ms,
        columns=_columns(given, decode),
        isolation=_isolation(given),
        min_partitions=positive(given, "minPartitions"),
        fail_on_data_loss=boolean(given, "failOnDataLoss", True) is not False,
        time_map_dir=folder(given, "timeMapDir") if "timemapdir" in given else None,
        skip_damaged=boolean(given, "skipDamaged", False) is True,
        notices=(*notices, *_doubts(given, starting, ending)),
        decode=decode,
    )


def _doubts(given: Mapping[str, str], starting: Bound, ending: Bound) -> list[str]:
    """Return a notice for each option whose number looks like seconds, microseconds or nanoseconds."""
    numbers: list[tuple[str, int]] = [
        (name, int(text))
        for name in ("startTime", "endTime")
        if INTEGER.fullmatch(text := given.get(name.lower(), "").strip()) and int(text) < MAX_TIME_MS
    ]
    for bound in (starting, ending):
        values = () if not bound.by_time else (bound.everywhere,) if bound.each is None else tuple(bound.each.values())
        numbers += [(bound.option, value) for value in values[:1] if value is not None and value < MAX_TIME_MS]
    return [f"option {name}: {doubt}" for name, number in numbers if (doubt := doubtful_unit(number)) is not None]


def _kind(given: Mapping[str, str]) -> Kind:
    """Return the kind of the source. If a path is set it takes precedence over brokers, so a job written for the connector can
    keep its options.
    """
    path, brokers = given.get("path", "").strip(), given.get(BROKERS, "").strip()
    kind = opening.BROKERS if brokers and not path else opening.kind_of(path)
    if kind.is_cluster:
        _brokers(given)
    if not kind.reads_files and "timemapdir" in given:
        raise InvalidArgumentError(f"option timeMapDir needs a folder, not {kind.name}")
    if not kind.reads_files and boolean(given, "skipDamaged", False):
        raise InvalidArgumentError(f"option skipDamaged reads segment files, so it needs a folder, not {kind.name}")
    return kind


def _source(given: Mapping[str, str], kind: Kind) -> str:
    path = given.get("path", "").strip()
    if kind.is_cluster:
        return _brokers(given)
    if not path:
        raise InvalidArgumentError(
            'no source is given: set .option("path", the Kafka data folder), .load(folder), or the option kafka.bootstrap.servers'
        )
    return folder(given, "path") if kind.is_local else kind.settled(with_storage(path, given))


def _brokers(given: Mapping[str, str]) -> str:
    path = given.get("path", "").strip()
    return broker_addresses(given, *(("path", path) if path else (BROKERS, given[BROKERS].strip())))


class _NoClock:
    """A clock that raises an error when it is read, for times that must be absolute."""

    def now_ms(self) -> int:
        raise InvalidArgumentError("a restarted stream must start at the same time: give an absolute time")


def _refuse_unknown(given: Mapping[str, str], kind: Kind, is_stream: bool) -> tuple[str, ...]:
    known = {name.lower() for name in (OPTIONS | STREAM_OPTIONS if is_stream else OPTIONS)}
    harmless = {name.lower(): name for name in (_IGNORED_EVERYWHERE if is_stream else IGNORED)}
    of_storage = storage_options(given, given.get("path", "").strip())
    ignored, unknown = [], []
    for key in given:
        if (
            key == _ISOLATION_OF_CLIENT
            or key in of_storage
            or key.startswith(REGISTRY)
            or (kind.is_cluster and (key == BROKERS or is_of_connections(key)))
        ):
            continue
        if key in harmless or key.startswith(CLIENT):
            ignored.append(harmless.get(key, key))
        elif key not in known:
            unknown.append(key)
    if unknown:
        names = ", ".join(f"{key}{ours_for(key) or did_you_mean(key, OPTIONS | STREAM_OPTIONS)}" for key in sorted(unknown))
        raise InvalidArgumentError(
            f"format tidelog has no option{'s' if len(unknown) > 1 else ''} {names}; "
            f"its options are {', '.join(OPTIONS | STREAM_OPTIONS)}"
        )
    if not ignored:
        return ()
    return (f"options without effect on {'files' if kind.reads_files else 'this source'}: {', '.join(sorted(ignored))}",)


def _subscription(
    given: Mapping[str, str],
) -> tuple[tuple[str, ...] | None, str | None, tuple[TopicPartition, ...] | None]:
    named = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in given]
    if len(named) != 1:
        found = "none of them" if not named else " and ".join(named)
        raise InvalidArgumentError(f"exactly one of the options subscribe, subscribePattern, assign is needed: found {found}")
    text = given[named[0].lower()].strip()
    if named == ["subscribe"]:
        topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
        if not topics:
            raise InvalidArgumentError("option subscribe is empty")
        for topic in topics:
            check_topic("subscribe", topic)
        return topics, None, None
    if named == ["subscribePattern"]:
        if not text:
            raise InvalidArgumentError("option subscribePattern is empty")
        compile_java_pattern(text)
        return None, text, None
    return None, None, _assigned(text)


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    expected = 'expected e.g. {"topicA":[0,1],"topicB":[0,1]}'
    document = json_object("assign", text, expected)
    partitions = []
    for topic, numbers in document.items():
        if not isinstance(numbers, list) or not all(is_integer(number) and number >= 0 for number in numbers):
            raise InvalidArgumentError(f"option assign: {expected}, found {text}")
        check_topic("assign", topic)
        partitions += [TopicPartition(topic, number) for number in numbers]
    if not partitions:
        raise InvalidArgumentError("option assign names no partition")
    return tuple(dict.fromkeys(partitions))


def _bound(given: Mapping[str, str], side: str, offsets_option: str, default: int, *, is_stream: bool = False) -> Bound:
    timestamp, by_timestamp = f"{side}Timestamp", f"{side}OffsetsByTimestamp"
    if timestamp.lower() in given:
        return Bound(timestamp, everywhere=_timestamp(timestamp, given[timestamp.lower()]), by_time=True)
    if by_timestamp.lower() in given:
        each = _per_partition(by_timestamp, given[by_timestamp.lower()], '{"topicA":{"0":1373414400000,"1":1373414400000}}')
        for partition, value in each.items():
            if value < 0:
                raise InvalidArgumentError(
                    f"option {by_timestamp}: a time for {_name(partition)} must not be negative, found {value}"
                )
        return Bound(by_timestamp, each=each, by_time=True)
    text = given.get(offsets_option.lower(), "").strip()
    if offsets_option.lower() not in given:
        return Bound(offsets_option, everywhere=default)
    if text.lower() in ("earliest", "latest"):
        value = EARLIEST if text.lower() == "earliest" else LATEST
        _check_special(offsets_option, value, default, "", is_stream)
        return Bound(offsets_option, everywhere=value)
    each = _per_partition(offsets_option, text, 'earliest, latest or e.g. {"topicA":{"0":23,"1":-2},"topicB":{"0":-2}}')
    for partition, value in each.items():
        _check_special(offsets_option, value, default, f" for {_name(partition)}", is_stream)
    return Bound(offsets_option, each=each)


def _check_special(option: str, value: int, default: int, where: str, is_stream: bool) -> None:
    if value >= 0 or value == default or (is_stream and value in (EARLIEST, LATEST)):
        return
    if value not in (EARLIEST, LATEST):
        raise InvalidArgumentError(f"option {option}: {value}{where} is not an offset (-2 means earliest, -1 latest)")
    name = "latest" if value == LATEST else "earliest"
    raise InvalidArgumentError(f"option {option} cannot be {name}{where}: every batch would be empty")


def _check_bounds(starting: Bound, ending: Bound) -> None:
    if starting.by_time != ending.by_time:
        return  # One bound is an offset, the other a time: only the logs show which is first.
    if starting.each is not None and ending.each is not None and starting.each.keys() != ending.each.keys():
        alone = ", ".join(_name(partition) for partition in sorted(starting.each.keys() ^ ending.each.keys()))
        raise InvalidArgumentError(
            f"options {starting.option} and {ending.option} must name the same partitions; only one of them names {alone}"
        )
    partitions = starting.each if starting.each is not None else ending.each
    if partitions is None:
        _check_order(starting, starting.everywhere, ending, ending.everywhere, "")
        return
    for partition in partitions:
        _check_order(starting, starting.of(partition), ending, ending.of(partition), f" for {_name(partition)}")


def _check_order(starting: Bound, start: int | None, ending: Bound, end: int | None, where: str) -> None:
    """Raise InvalidArgumentError for a start after its end, which would silently give a batch without rows."""
    if start is not None and end is not None and start >= 0 and 0 <= end < start:
        raise InvalidArgumentError(f"options: {starting.option} {start} lies after {ending.option} {end}{where}")


def _timestamp(option: str, text: str) -> int:
    if not INTEGER.fullmatch(text.strip()) or not 0 <= int(text) < 2**63:
        raise InvalidArgumentError(
            f"option {option}: expected epoch milliseconds, found {text!r} (startTime and endTime accept times as text)"
        )
    return int(text)


def _per_partition(option: str, text: str, expected: str) -> dict[TopicPartition, int]:
    document = json_object(option, text, f"expected {expected}")
    values: dict[TopicPartition, int] = {}
    for topic, partitions in document.items():
        if not isinstance(partitions, dict):
            raise InvalidArgumentError(f"option {option}: expected {expected}, found {text}")
        for partition, value in partitions.items():
            if not re.fullmatch(r"\d{1,10}", partition, re.ASCII) or not is_integer(value) or abs(value) >= 2**63:
                raise InvalidArgumentError(f"option {option}: expected {expected}, found {text}")
            values[TopicPartition(topic, int(partition))] = value
    return values


def _columns(given: Mapping[str, str], decode: DecodeOptions | None) -> tuple[str, ...]:
    headers = boolean(given, "includeHeaders", None)
    available = (*COLUMNS, *(() if decode is None else decode.added_columns))
    if "columns" not in given:
        return tuple(name for name in available if name != "createTime" and (name != "headers" or headers))
    by_name = {name.lower(): name for name in available}
    names: list[str] = []
    for text in given["columns"].split(","):
        name = by_name.get(text.strip().lower())
        if name is None:
            raise InvalidArgumentError(f"option columns: {text.strip()!r} is not one of {', '.join(available)}")
        if name in names:
            raise InvalidArgumentError(f"option columns: {name} is named twice")
        names.append(name)
    if headers is False and "headers" in names:
        raise InvalidArgumentError("option columns contains headers, but option includeHeaders is false")
    for side, (_, _, undecoded_name) in OPTIONS_OF_SIDES.items():
        if undecoded_name in names and side not in names:
            raise InvalidArgumentError(f"option columns: {undecoded_name} needs the column {side}")
    if headers and "headers" not in names:
        names.append("headers")
    return tuple(names)


def _isolation(given: Mapping[str, str]) -> Isolation:
    names = [name for name in ("isolationLevel", _ISOLATION_OF_CLIENT) if name.lower() in given]
    values = {choice(given, name, ("read_uncommitted", "read_committed")) for name in names}
    if len(values) > 1:
        raise InvalidArgumentError(f"options isolationLevel and {_ISOLATION_OF_CLIENT} disagree")
    return cast("Isolation", values.pop()) if values else "read_uncommitted"


def _name(partition: TopicPartition) -> str:
    return f"{partition[0]}-{partition[1]}"
