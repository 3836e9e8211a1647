"""Determines which partitions and offsets a load reads, by applying its options to the existing logs.

| option | meaning |
|---|---|
| earliest, latest | no bound; as the start of a stream, latest is the readable end |
| an offset inside the log | that offset |
| an offset outside the log | OffsetOutOfRangeError; with `failOnDataLoss=false` the nearest offset inside, and a notice |
| a time at the start | the first record at or after it; if there is none, NotFoundError or, by strategy, the log end |
| a time at the end | the first record at or after it; if there is none, no bound |
| a start after its end | InvalidArgumentError |

Records missing from a folder are also an error, or a notice with `failOnDataLoss=false`. The source looks up offsets for times
(`Source.find`). This module runs only on the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from tidelog.errors import InvalidArgumentError, NotFoundError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from tidelog.model import EARLIEST, INTERNAL_TOPICS, LATEST, Isolation, TopicPartition
from tidelog.reader.missing.missing_offsets import MissingOffsets
from tidelog.sources.bounds import LOG_END
from tidelog.sources.source import Ends, Source
from tidelog.spark.java_pattern import compile_java_pattern
from tidelog.spark.options import Bound, ReadOptions
from tidelog.times import format_time

OffsetRange = tuple[int | None, int | None]
"""The first offset, and the offset after the last; None for no bound."""

MOST_NAMED = 5
"""The most missing ranges that an error lists."""

_log = logging.getLogger("tidelog.spark")


def existing_topics(options: ReadOptions, source: Source) -> dict[str, list[int]]:
    """Return the current partitions of each topic that the options may select.

    Raises BrokerError for a named topic that the user is not authorized to describe.
    """
    if options.pattern is not None:
        return source.topics()
    return source.topics(_named(options))


def select_partitions(
    options: ReadOptions, source: Source, existing: Mapping[str, list[int]], *, warns: bool = True
) -> list[TopicPartition]:
    """Return the partitions to read, sorted. `existing` comes from `existing_topics`.

    Raises UnknownTopicOrPartitionError for a named topic or partition that does not exist. A pattern may match nothing.
    """
    existing = {**existing, **{name: _found_now(name, source) for name in _named(options) if name not in existing}}
    if options.assigned is not None:
        for topic, partition in options.assigned:
            if partition not in existing[topic]:
                raise UnknownTopicOrPartitionError(
                    f"topic {topic} has no partition {partition}",
                    path=options.source,
                    expected=f"one of {', '.join(map(str, sorted(existing[topic])))}",
                )
        return sorted(options.assigned)
    if options.topics is not None:
        topics: Iterable[str] = options.topics
    else:
        assert options.pattern is not None
        pattern = compile_java_pattern(options.pattern)
        topics = [topic for topic in existing if topic not in INTERNAL_TOPICS and pattern.search(topic)]
        if not topics and warns:
            _log.warning("subscribePattern %s matches no topic in %s", options.pattern, options.source)
    return sorted(TopicPartition(topic, partition) for topic in topics for partition in existing[topic])


def _found_now(name: str, source: Source) -> list[int]:
    """Return the current partitions of a topic that did not exist when topics were listed. Raises UnknownTopicOrPartitionError,
    BrokerError.
    """
    try:
        return source.partitions(name)
    except UnknownTopicOrPartitionError as error:
        names = sorted(source.topics())
        if names and "did you mean" not in error.message:
            error.expected = f"one of {', '.join(names[:10])}" + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        raise


def _named(options: ReadOptions) -> list[str]:
    """Return the topics that the options name."""
    return sorted(options.topics or {topic for topic, _ in options.assigned or ()})


def missing_partitions(options: ReadOptions, source: Source) -> list[MissingOffsets]:
    """Return the partitions that a load needs and that are missing from the source. For `assign` there are none, because
    `select_partitions` has checked them.
    """
    if options.assigned is not None:
        return []
    missing = source.missing_partitions()
    if options.topics is not None:
        return [one for one in missing if one.topic in options.topics]
    assert options.pattern is not None
    pattern = compile_java_pattern(options.pattern)
    return [one for one in missing if one.topic not in INTERNAL_TOPICS and pattern.search(one.topic)]


def report_missing(options: ReadOptions, missing: Iterable[MissingOffsets]) -> None:
    """Raise OffsetOutOfRangeError if records are missing from a folder. With `failOnDataLoss=false`, log a warning instead."""
    found = list(missing)
    texts = [str(one) for one in found if one.is_loss]
    if texts and options.fail_on_data_loss:
        more = f"; and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
        raise OffsetOutOfRangeError(
            f"records are missing from the folder: {'; '.join(texts[:MOST_NAMED])}{more} "
            "(to read the remaining records, set failOnDataLoss=false)",
            path=options.source,
        )
    for one in found:
        _log.warning("%s", one.sentence)


def resolve_ranges(
    options: ReadOptions, source: Source, partitions: list[TopicPartition], until: str = LOG_END
) -> dict[TopicPartition, OffsetRange]:
    """Return each partition's offset range. Logs are opened only if a bound requires it.

    `until` defines the readable end of a log. For a batch it is the log end.

    Raises:
        InvalidArgumentError: bounds by partition do not name exactly the partitions that are read; a start is after its end.
        OffsetOutOfRangeError, NotFoundError: see the table above.
        UnsupportedForMessageFormatError: a bound by time on a log whose format has no timestamps.
    """
    for bound in (options.starting, options.ending):
        _check_names(bound, partitions)
    ranges: dict[TopicPartition, OffsetRange] = dict.fromkeys(partitions, (None, None))
    bounded = [
        partition
        for partition in partitions
        if (options.starting.of(partition), options.ending.of(partition)) != (EARLIEST, LATEST)
    ]
    if not bounded:
        return ranges
    held = source.ends(bounded, options.isolation, until)
    firsts, lasts = (_found(source, bound, bounded, options.isolation, until) for bound in (options.starting, options.ending))
    for key in bounded:
        if key not in held:
            raise UnknownTopicOrPartitionError(
                f"partition {key.partition} of topic {key.topic!r} has been deleted", path=options.source
            )
        first = _start(options, source, held[key], key, firsts.get(key))
        behind = _end(options, held[key], key, lasts.get(key))
        if first is not None and behind is not None and first > behind:
            _check_order(options, key, first, behind)
            behind = first
        ranges[key] = first, behind
    return ranges


def _found(
    source: Source, bound: Bound, keys: list[TopicPartition], isolation: Isolation, until: str
) -> dict[TopicPartition, int | None]:
    """For a bound by time, return each partition's first offset at or after the time, or None if there is none. For a bound by
    offset, return an empty dict.
    """
    if not bound.by_time:
        return {}
    found = source.find({key: bound.of(key) for key in keys}, isolation, until)
    return {key: None if first is None else first.offset for key, first in found.items()}


def _check_names(bound: Bound, partitions: list[TopicPartition]) -> None:
    if bound.each is None or bound.each.keys() == set(partitions):
        return
    missing = sorted(set(partitions) - bound.each.keys())
    strange = sorted(bound.each.keys() - set(partitions))
    given = [
        f"{verb} {', '.join(f'{topic}-{partition}' for topic, partition in names)}"
        for verb, names in (("missing:", missing), ("not read:", strange))
        if names
    ]
    raise InvalidArgumentError(f"option {bound.option} must name exactly the partitions that are read ({'; '.join(given)})")


def _start(options: ReadOptions, source: Source, held: Ends, partition: TopicPartition, found: int | None) -> int | None:
    bound = options.starting
    value = bound.of(partition)
    if not bound.by_time:
        if value == LATEST:
            return held.end_offset
        return None if value == EARLIEST else _inside(options, bound, held, partition, value)
    report_missing(options, source.missing_in({partition: (0, found)}))
    if found is not None:
        return found
    if options.error_without_match:
        raise NotFoundError(
            f"option {bound.option}: {partition[0]}-{partition[1]} has no record at or after {value} ({format_time(value)}); "
            "to start such partitions at their end, set startingOffsetsByTimestampStrategy=latest"
        )
    return held.end_offset


def _end(options: ReadOptions, held: Ends, partition: TopicPartition, found: int | None) -> int | None:
    bound = options.ending
    if bound.by_time:
        return found
    value = bound.of(partition)
    return None if value == LATEST else _inside(options, bound, held, partition, value)


def _check_order(options: ReadOptions, partition: TopicPartition, first: int, behind: int) -> None:
    """Raise InvalidArgumentError because a start is after its end. With `failOnDataLoss=false`, log instead that nothing is
    read.
    """
    message = (
        f"options: {options.starting.option} is offset {first} of {partition[0]}-{partition[1]}, "
        f"which lies after {options.ending.option}, offset {behind}"
    )
    if options.fail_on_data_loss:
        raise InvalidArgumentError(message)
    _log.warning("%s; nothing is read from this partition", message)


def _inside(options: ReadOptions, bound: Bound, held: Ends, partition: TopicPartition, offset: int) -> int:
    first, end = held.log_start_offset, held.end_offset
    if first <= offset <= end:
        return offset
    message = f"option {bound.option}: offset {offset} is outside {partition[0]}-{partition[1]}, which holds {first} to {end}"
    if options.fail_on_data_loss:
        raise OffsetOutOfRangeError(f"{message}; to read the remaining records, set failOnDataLoss=false")
    inside = min(max(offset, first), end)
    _log.warning("%s; using %d instead", message, inside)
    return inside
