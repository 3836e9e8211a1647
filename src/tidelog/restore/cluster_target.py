"""Copies topics of a backup into a running cluster. Records get new offsets there, which are recorded in offset maps.

Records are copied in transactions that include the copy's position (`copying.copier`), so a restore that was killed continues
without duplicates. The restore's work folder holds the offset maps and a file that identifies the restore. Running the same
command again finds the restore by this file. Records of aborted transactions, and of transactions still open at the end, are left
out.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidelog.client.connections.cluster import Cluster
from tidelog.client.connections.failures import error_for
from tidelog.client.consumer_groups.group_lag import log_ends
from tidelog.client.consumer_groups.groups import commit_offsets, describe_group
from tidelog.client.reading.topic_configs import retention_configs
from tidelog.config import INT32_MAX
from tidelog.copying.column_rebuilding import TimeRule
from tidelog.copying.copier import CopyTask, committed_positions, copy_partition, spread_folder, spread_group
from tidelog.copying.offset_map import OffsetMap
from tidelog.copying.source_batches import CopyRules
from tidelog.copying.target_topics import LEFT_OUT, TopicShape, ensure_topics
from tidelog.errors import BrokerError, InvalidArgumentError, NotFoundError, TopicExistsError
from tidelog.formats.json_files import make_folder, read_json, understanding, write_new_json
from tidelog.groups.description import DEAD, EMPTY
from tidelog.model import MAX_OFFSET, READ_COMMITTED, READ_UNCOMMITTED, TopicPartition
from tidelog.restore.cuts import PartitionCut, RestorePlan, TopicCut
from tidelog.restore.moment import Positions
from tidelog.restore.points import Points
from tidelog.restore.read_back import Written
from tidelog.restore.request import check_same
from tidelog.restore.result import RestoredPartition
from tidelog.restore.runner import WRITTEN_AT_ONCE, Runner
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

FILE_NAME = "restore.json"
VERSION = 1
CHUNK_BYTES = 64 << 20
"""The approximate size of a transaction. It is large, because nobody waits for these records, and each commit needs several
requests.
"""
HELD = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "max.message.bytes": str(INT32_MAX),
}
"""The settings of a topic while it is restored."""

_OF_OTHER_BROKERS = frozenset(
    {
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        "message.format.version",
        "remote.storage.enable",
        "local.retention.ms",
        "local.retention.bytes",
    }
)
_IN_SYNC = "min.insync.replicas"
_SET, _DELETE, _TOPIC = 0, 1, 2
_WHAT = "a restore's file"


@dataclass(frozen=True, slots=True)
class ClusterRestore:
    """A restore in progress: its job's name in the target, and the end offsets that the target's partitions had before the
    restore.
    """

    job_id: str
    ends: Mapping[TopicPartition, int]


def begin(plan: RestorePlan, cluster: Cluster, folder: Path) -> ClusterRestore:
    """Create the topics and the work folder, or continue the restore in that folder.

    Raises TopicExistsError for topics with records, InvalidArgumentError if the folder belongs to a different restore,
    BrokerError.
    """
    begun = begun_in(plan, cluster, folder)
    if begun is None:
        ends = refuse_full(plan, cluster)
        make_folder(folder)
        before = [[*key, end] for key, end in sorted(ends.items())]
        content = {"job_id": f"tidelog-restore-{secrets.token_hex(6)}", "restore": _identity(plan, cluster), "ends": before}
        write_new_json(folder / FILE_NAME, VERSION, content, indent=1)
        begun = begun_in(plan, cluster, folder)
        assert begun is not None
    _make_topics(plan, cluster)
    return begun


def begun_in(plan: RestorePlan, cluster: Cluster, folder: Path) -> ClusterRestore | None:
    """Return the restore in a work folder, None if there is none. Raises InvalidArgumentError if it is a different restore,
    CorruptCheckpointError.
    """
    known = read_json(folder / FILE_NAME, VERSION, _WHAT)
    if known is None:
        return None
    with understanding(folder / FILE_NAME, _WHAT):
        identity = dict(known["restore"])
        begun = ClusterRestore(
            str(known["job_id"]), {TopicPartition(topic, partition): int(end) for topic, partition, end in known["ends"]}
        )
    check_same(identity, _identity(plan, cluster), folder / FILE_NAME, "the work folder", "choose a different folder with --work")
    return begun


def _identity(plan: RestorePlan, cluster: Cluster) -> dict[str, object]:
    return {**plan.identity, "target": cluster.cluster_id}


def refuse_full(plan: RestorePlan, cluster: Cluster) -> dict[TopicPartition, int]:
    """Return the end offsets of the plan's topics that already exist. Raises TopicExistsError for topics with records,
    unless the request appends to them, and InvalidArgumentError for a topic with a different number of partitions than requested.
    """
    there = cluster.topics()
    for topic in plan.topics:
        count = len(there[topic.name].partitions) if topic.name in there else topic.partition_count
        if topic.spread is not None and count != topic.partition_count:
            text = f"topic {topic.name!r} already exists with a different number of partitions"
            raise InvalidArgumentError(text, path=str(cluster), found=count, expected=topic.partition_count)
    keys = [TopicPartition(one.name, number) for one in plan.topics if one.name in there for number in there[one.name].partitions]
    ends = log_ends(cluster, keys, READ_COMMITTED) if keys else {}
    full = sorted({key.topic for key, one in ends.items() if one.high_watermark > one.log_start_offset})
    if full and not plan.request.into_existing:
        text = f"topics with records already exist: {', '.join(full)}: use --rename or --into-existing"
        raise TopicExistsError(text, path=str(cluster))
    return {key: one.high_watermark for key, one in ends.items()}


def copy(
    plan: RestorePlan, points: Points, begun: ClusterRestore, folder: Path, progress: Callable[[int], object], run: Runner
) -> Iterator[RestoredPartition]:
    """Copy the remaining records. Raises what `copy_partition` raises."""
    tasks: list[tuple[TopicCut, PartitionCut, CopyTask]] = []
    for topic in plan.topics:
        for cut in topic.partitions:
            task = CopyTask(
                begun.job_id,
                TopicPartition(topic.source, cut.partition),
                tuple(plan.splits_of(points.at(topic.address), topic, cut)),
                cut.start_offset,
                cut.end_offset,
                plan.request.target,
                TopicPartition(topic.name, cut.partition),
                str(folder),
                CopyRules(TimeRule.LOG, spread=topic.spread),
                CHUNK_BYTES,
            )
            tasks.append((topic, cut, task))
    tasks.sort(key=lambda one: -one[2].size_bytes)
    for (topic, cut, task), done in zip(tasks, run(copy_partition, [task for _, _, task in tasks], WRITTEN_AT_ONCE), strict=True):
        progress(task.size_bytes)
        maps = [OffsetMap.open(part).partition(task.source) for part in _map_folders(topic, folder)]
        counts = [one.record_count for part in maps for one in part.runs]
        records = None if min(counts, default=0) < 0 else sum(counts)
        yield topic.result(cut, None if topic.spread else maps[0].end_target_offset, records, done.size_bytes)


def restore_groups(
    plan: RestorePlan, cluster: Cluster, begun: ClusterRestore, folder: Path, positions: Positions
) -> Iterator[tuple[str, dict[TopicPartition, int], str]]:
    """Commit the groups' positions in the target. Yield each group with its new offsets and an empty text. Skip a group that
    has members in the target: yield it with no offsets and the reason.
    """
    mapped = {topic.source: _map_of(topic, cluster, begun, folder) for topic in plan.topics}
    for group, offsets in sorted(positions.items()):
        new: dict[TopicPartition, int] = {}
        for topic in plan.topics:
            new |= mapped[topic.source]({key.partition: one.offset for key, one in offsets.items() if key.topic == topic.source})
        if not new:
            continue
        if describe_group(cluster, group).state not in (EMPTY, DEAD):
            yield group, {}, "it has members in the target"
            continue
        try:
            commit_offsets(cluster, group, new)
        except BrokerError as error:
            if error.error_code != ErrorCode.UNKNOWN_MEMBER_ID:
                raise
            yield group, {}, "it has members in the target"
            continue
        yield group, new, ""


def _map_folders(topic: TopicCut, folder: Path) -> list[Path]:
    return [folder] if topic.spread is None else [spread_folder(folder, number) for number in range(topic.spread.partitions)]


Mapped = Callable[[Mapping[int, int]], dict[TopicPartition, int]]


def _map_of(topic: TopicCut, cluster: Cluster, begun: ClusterRestore, folder: Path) -> Mapped:
    """Return a function that converts a group's positions in a topic, by partition, to positions in the target.

    If the records go to a different number of partitions, a position in the target is at or before the first record that the
    group had not read. The group then reads some records again, and misses none.
    """
    sources = [TopicPartition(topic.source, cut.partition) for cut in topic.partitions]
    settled: dict[TopicPartition, int] = {}
    if topic.spread is None:
        keys = {source: TopicPartition(topic.name, source.partition) for source in sources}
        settled = committed_positions(cluster, begun.job_id, keys, require_stable=False)
    else:
        for source in sources:
            key = {source: TopicPartition(topic.name, 0)}
            settled |= committed_positions(cluster, spread_group(begun.job_id, source), key, require_stable=False)
    maps = [OffsetMap.open(part, settled) for part in _map_folders(topic, folder)]

    def one_to_one(positions: Mapping[int, int]) -> dict[TopicPartition, int]:
        found = {number: _mapped(maps[0], TopicPartition(topic.source, number), one) for number, one in positions.items()}
        return {TopicPartition(topic.name, number): offset for number, offset in found.items() if offset is not None}

    def spread(positions: Mapping[int, int]) -> dict[TopicPartition, int]:
        if not positions:
            return {}
        found: dict[TopicPartition, int] = {}
        for number, one in enumerate(maps):
            parts = [one.partition(source) for source in sources]
            unread = [
                part.target_of(positions.get(part.source.partition, 0)).offset
                for part in parts
                if part.runs and positions.get(part.source.partition, 0) <= part.runs[-1].last_source_offset
            ]
            end = max((part.end_target_offset for part in parts), default=0)
            found[TopicPartition(topic.name, number)] = min(unread, default=end)
        return found

    return one_to_one if topic.spread is None else spread


def _mapped(maps: OffsetMap, source: TopicPartition, offset: int) -> int | None:
    try:
        return maps.partition(source).target_of(offset).offset
    except NotFoundError:
        return None


def _make_topics(plan: RestorePlan, cluster: Cluster) -> None:
    """Create missing topics, with their old replication factor if there are enough brokers.

    Until everything is copied and read back, the settings `HELD` keep all records and their timestamps.
    """
    brokers = len(cluster.brokers)
    by_factor: dict[int | None, dict[str, TopicShape]] = {}
    for topic in plan.topics:
        known = topic.manifest.replication_factor
        factor = known if 0 < known <= brokers else None
        configs = {key: value for key, value in topic.settings.items() if key not in LEFT_OUT}
        shape = TopicShape(topic.partition_count, configs | HELD)
        by_factor.setdefault(factor, {})[topic.name] = shape
    for replicas, wanted in by_factor.items():
        ensure_topics(cluster, wanted, replication_factor=replicas)


def settle_topics(plan: RestorePlan, cluster: Cluster, begun: ClusterRestore) -> list[str]:
    """Give the created topics their old settings, and return those that the target refused.

    Raises BrokerUnreachableError, UnsupportedVersionError.
    """
    refused: list[str] = []
    replicas = {
        name: len(next(iter(one.partitions.values())).replicas) for name, one in cluster.topics().items() if one.partitions
    }
    for topic in plan.topics:
        if any(key.topic == topic.name for key in begun.ends):
            continue  # The topic existed before, and keeps its settings.
        settings = {key: value for key, value in topic.settings.items() if key not in _OF_OTHER_BROKERS}
        wanted = int(settings.get(_IN_SYNC) or 0)
        if wanted > replicas[topic.name]:  # Otherwise no producer with acks=all could write.
            del settings[_IN_SYNC]
            refused.append(
                f"topic {topic.name}: {_IN_SYNC}={wanted} was not set: the topic has only {replicas[topic.name]} replicas"
            )
        changes = [AlterableConfig(name=key, config_operation=_SET, value=value) for key, value in sorted(settings.items())]
        changes += [
            AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in sorted(HELD.keys() - settings.keys())
        ]
        try:
            _alter(cluster, topic.name, changes)
        except (BrokerError, InvalidArgumentError):
            for change in changes:  # A newer release may not have a setting any more.
                try:
                    _alter(cluster, topic.name, [change])
                except (BrokerError, InvalidArgumentError) as error:
                    refused.append(f"topic {topic.name}: {change.name}={change.value} was not set: {error}")
    return refused


def _alter(cluster: Cluster, topic: str, changes: list[AlterableConfig]) -> None:
    resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=topic, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = cluster.ask_any(request, IncrementalAlterConfigsResponse, newest=1).responses
    if answer.error_code:
        raise error_for(answer.error_code, f"settings of topic {topic}", cluster, answer.error_message)


def written_ranges(plan: RestorePlan, cluster: Cluster, begun: ClusterRestore, folder: Path) -> dict[TopicPartition, Written]:
    """Return what the restore has written in each partition of the target.

    The end is taken from the offset maps, not from the log: a commit succeeds before its markers are written, so the last stable
    offset may be lower, and other producers may have written since.
    """
    ends: dict[TopicPartition, int] = {}
    for topic in plan.topics:
        sources = [TopicPartition(topic.source, cut.partition) for cut in topic.partitions]
        for part in map(OffsetMap.open, _map_folders(topic, folder)):
            for one in map(part.partition, sources):
                if one.runs:
                    key = TopicPartition(topic.name, one.runs[-1].target_partition)
                    is_known = one.runs[-1].record_count >= 0
                    ends[key] = max(ends.get(key, 0), one.end_target_offset if is_known else MAX_OFFSET)
    keys = [key for topic in plan.topics for key in topic.targets]
    now = log_ends(cluster, keys, READ_UNCOMMITTED)
    compacted = {name for name, one in retention_configs(cluster, (key.topic for key in keys)).items() if one.is_compacted}
    found = {}
    for key in keys:
        start = begun.ends.get(key, 0)
        end = max(start, min(ends.get(key, start), now[key].high_watermark))
        found[key] = Written(start, end, now[key].log_start_offset, key.topic in compacted)
    return found
