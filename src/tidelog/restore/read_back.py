"""Reads back the restored records, and compares them with the backup. A difference includes its cause, if it is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tidelog.formats.names import log_dir_name
from tidelog.model import READ_COMMITTED, TopicPartition
from tidelog.restore.cuts import SPLIT_BYTES, RestorePlan, TopicCut
from tidelog.restore.digest import Digest, DigestTask, digest_of
from tidelog.restore.points import Points
from tidelog.restore.runner import COMPARED_AT_ONCE, Runner
from tidelog.sources.scan_plan import ALL_TIMES
from tidelog.sources.source import Source
from tidelog.sources.split import Split


class Written(NamedTuple):
    """The offsets that a restore has written in a partition of a cluster, and facts that show whether records were removed
    since.
    """

    start_offset: int
    end_offset: int
    log_start_offset: int
    """The partition's current log start offset."""
    is_compacted: bool


class ReadBack(NamedTuple):
    """The digests of the target's partitions that are equal to the backup, and a text for each partition that differs."""

    digests: dict[TopicPartition, Digest]
    differences: list[str]


def read_back(
    plan: RestorePlan,
    points: Points,
    target: Source,
    run: Runner,
    written: Mapping[TopicPartition, Written] | None = None,
) -> ReadBack:
    """Compare the restored records with the backup. `written` is None for a folder, which keeps offsets.

    Raises the errors of `Split.read`, and BrokerError if a written record cannot be read before the time-out.
    """
    # Not on one of the threads below, which end: later allocations on other threads would crash (Arrow 25.0, apache/arrow#50471).
    import pyarrow  # noqa: F401

    result = ReadBack({}, [])
    keys: list[TopicPartition] = []
    tasks: list[DigestTask] = []
    for topic in plan.topics:
        if topic.spread is not None:
            assert written is not None
            _compare_spread(result, plan, points, target, topic, written)
            continue
        for cut in topic.partitions:
            key = TopicPartition(topic.name, cut.partition)
            span = _bounds(target, key) if written is None else _left(written[key])
            wanted = plan.splits_of(points.at(topic.address), topic, cut)
            keys.append(key)
            tasks += [DigestTask(tuple(wanted), written is None), DigestTask(tuple(_splits(target, key, span)), written is None)]
    digests = iter(run(digest_of, tasks, COMPARED_AT_ONCE))
    for key, wanted_one, found in zip(keys, digests, digests, strict=True):
        if found == wanted_one:
            result.digests[key] = found
        else:
            result.differences.append(_difference(log_dir_name(*key), found.records, wanted_one.records, [key], written))
    return result


def _compare_spread(
    result: ReadBack,
    plan: RestorePlan,
    points: Points,
    target: Source,
    topic: TopicCut,
    written: Mapping[TopicPartition, Written],
) -> None:
    """Compare a topic whose number of partitions has changed: all records together, and that each is in the partition of its
    key.
    """
    from tidelog.restore.unordered_digest import UnorderedDigest, unordered_digest_of

    wanted = {
        TopicPartition(topic.name, cut.partition): unordered_digest_of(plan.splits_of(points.at(topic.address), topic, cut))
        for cut in topic.partitions
    }
    found = UnorderedDigest()
    for key in topic.targets:
        one = unordered_digest_of(_splits(target, key, _left(written[key])), topic.spread)
        odd = one.places.keys() - {key.partition}
        if odd:
            result.differences.append(f"{log_dir_name(*key)}: has records with keys that belong in partitions {sorted(odd)}")
        found.add(one)
    whole = UnorderedDigest()
    for one in wanted.values():
        whole.add(one)
    if found.sums == whole.sums:
        result.digests.update((key, one.digest()) for key, one in wanted.items())
    else:
        result.differences.append(_difference(topic.name, found.records, whole.records, topic.targets, written))


def _difference(
    place: str, found: int, wanted: int, keys: Iterable[TopicPartition], written: Mapping[TopicPartition, Written] | None
) -> str:
    counts = (
        "the number of records is equal, but their content differs"
        if found == wanted
        else f"found {found:,} records, expected {wanted:,}"
    )
    causes = "" if written is None else "; ".join(_causes(keys, written))
    return f"{place}: {counts}" + (f" ({causes})" if causes else "")


def _causes(keys: Iterable[TopicPartition], written: Mapping[TopicPartition, Written]) -> Iterator[str]:
    for key in keys:
        one = written[key]
        if one.log_start_offset > one.start_offset:
            start = f"its log start offset is now {one.log_start_offset}"
            place = f"{log_dir_name(*key)} was written from offset {one.start_offset}, but {start}"
            yield f"retention or DeleteRecords has removed records: {place}"
        if one.is_compacted:
            yield f"compaction may have removed records: topic {key.topic} has cleanup.policy=compact"
            return


def _left(one: Written) -> tuple[int, int]:
    return max(one.start_offset, one.log_start_offset), one.end_offset


def _splits(target: Source, key: TopicPartition, span: tuple[int, int]) -> Sequence[Split]:
    start, end = span
    return target.splits({key: span}, ALL_TIMES, READ_COMMITTED, split_bytes=SPLIT_BYTES) if start < end else ()


def _bounds(target: Source, key: TopicPartition) -> tuple[int, int]:
    one = target.ends([key], READ_COMMITTED)[key]
    return one.log_start_offset, one.end_offset
