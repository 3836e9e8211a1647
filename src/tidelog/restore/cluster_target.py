"""Copies topics of a backup into a running cluster. Records get new offsets there; offset maps record which.

Records are copied in transactions that include the position (`copying.copier`), so a restore that was killed continues without
duplicates. Its work folder holds the maps, and a file that identifies the restore, by which the same command finds it again.
Records of aborted transactions, and of transactions still open at the end, are left out.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tidelog.client.connections.cluster import Cluster
from tidelog.client.connections.failures import error_for
from tidelog.client.consumer_groups.group_lag import log_ends
from tidelog.client.consumer_groups.groups import commit_offsets, describe_group
from tidelog.config import INT32_MAX
from tidelog.copying.column_rebuilding import TimeRule
from tidelog.copying.copier import CopyTask, committed_positions, copy_partition
from tidelog.copying.offset_map import OffsetMap
from tidelog.copying.source_batches import CopyRules
from tidelog.copying.target_topics import LEFT_OUT, TopicShape, ensure_topics
from tidelog.errors import BrokerError, InvalidArgumentError, NotFoundError, TopicExistsError
from tidelog.formats.json_files import make_folder, read_json, understanding, write_new_json
from tidelog.groups.description import DEAD, EMPTY
from tidelog.model import READ_COMMITTED, TopicPartition
from tidelog.restore.cuts import PartitionCut, RestorePlan, TopicCut
from tidelog.restore.moment import Positions
from tidelog.restore.points import Points
from tidelog.restore.request import check_same
from tidelog.restore.result import RestoredPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

FILE_NAME = "restore.json"
VERSION = 1
PARALLEL = 4
"""So many partitions are copied at the same time."""

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
    """A restore in progress: the job's name in the target, and the partitions' end offsets there before it."""

    job_id: str
    ends: Mapping[TopicPartition, int]


def begin(plan: RestorePlan, cluster: Cluster, folder: Path) -> ClusterRestore:
    """Create the topics and the work folder, or continue the restore in that folder.

    Raises TopicExistsError for topics with records, InvalidArgumentError if the folder belongs to another restore, BrokerError.
    """
    wanted = {**plan.identity, "target": cluster.cluster_id}
    known = read_json(folder / FILE_NAME, VERSION, _WHAT)
    if known is None:
        there = cluster.topics()
        names = [topic.name for topic in plan.topics if topic.name in there]
        keys = [TopicPartition(name, number) for name in names for number in there[name].partitions]
        ends = log_ends(cluster, keys, READ_COMMITTED) if keys else {}
        full = sorted({key.topic for key, one in ends.items() if one.high_watermark > one.log_start_offset})
        if full and not plan.request.into_existing:
            raise TopicExistsError(
                f"topics with records already exist: {', '.join(full)}",
                path=str(cluster),
                expected="--rename, or --into-existing",
            )
        make_folder(folder)
        before = [[*key, one.high_watermark] for key, one in sorted(ends.items())]
        content = {"job_id": f"tidelog-restore-{secrets.token_hex(6)}", "restore": wanted, "ends": before}
        write_new_json(folder / FILE_NAME, VERSION, content, indent=1)
        known = read_json(folder / FILE_NAME, VERSION, _WHAT)
        assert known is not None
    with understanding(folder / FILE_NAME, _WHAT):
        check_same(known["restore"], wanted, folder / FILE_NAME)
        begun = ClusterRestore(
            str(known["job_id"]), {TopicPartition(topic, partition): int(end) for topic, partition, end in known["ends"]}
        )
    _make_topics(plan, cluster)
    return begun


def copy(
    plan: RestorePlan, points: Points, begun: ClusterRestore, folder: Path, progress: Callable[[int], object]
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
                CopyRules(TimeRule.LOG),
            )
            tasks.append((topic, cut, task))
    tasks.sort(key=lambda one: -one[2].size_bytes)

    def run(one: tuple[TopicCut, PartitionCut, CopyTask]) -> RestoredPartition:
        topic, cut, task = one
        done = copy_partition(task)
        progress(task.size_bytes)
        target_map = OffsetMap.open(folder).partition(task.source)
        counts = [run.record_count for run in target_map.runs]
        records = None if min(counts, default=0) < 0 else sum(counts)
        return topic.result(cut, target_map.end_target_offset, records, done.size_bytes)

    with ThreadPoolExecutor(PARALLEL) as pool:
        yield from pool.map(run, tasks)


def restore_groups(
    plan: RestorePlan, cluster: Cluster, begun: ClusterRestore, folder: Path, positions: Positions
) -> Iterator[tuple[str, dict[TopicPartition, int], str]]:
    """Set groups to their old positions. Yield each group with its new offsets, and the reason if it was skipped, otherwise an
    empty text.

    A group with members in the target is skipped.
    """
    keys = {TopicPartition(topic.source, cut.partition): topic for topic in plan.topics for cut in topic.partitions}
    targets = {source: TopicPartition(topic.name, source.partition) for source, topic in keys.items()}
    maps = OffsetMap.open(folder, committed_positions(cluster, begun.job_id, targets, require_stable=False))
    for group, offsets in sorted(positions.items()):
        mapped = {source: _mapped(maps, source, one.offset) for source, one in offsets.items() if source in targets}
        new = {targets[source]: offset for source, offset in mapped.items() if offset is not None}
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
            continue  # It was there before, and keeps its settings.
        settings = {key: value for key, value in topic.settings.items() if key not in _OF_OTHER_BROKERS}
        wanted = int(settings.get(_IN_SYNC) or 0)
        if wanted > replicas[topic.name]:  # Nobody could write.
            del settings[_IN_SYNC]
            refused.append(f"topic {topic.name}: {_IN_SYNC}={wanted} is not set: it has {replicas[topic.name]} replicas")
        changes = [AlterableConfig(name=key, config_operation=_SET, value=value) for key, value in sorted(settings.items())]
        changes += [
            AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in sorted(HELD.keys() - settings.keys())
        ]
        try:
            _alter(cluster, topic.name, changes)
        except (BrokerError, InvalidArgumentError):
            for change in changes:  # A release may not know a setting any more.
                try:
                    _alter(cluster, topic.name, [change])
                except (BrokerError, InvalidArgumentError) as error:
                    refused.append(f"topic {topic.name}: {change.name}={change.value} is not set: {error}")
    return refused


def _alter(cluster: Cluster, topic: str, changes: list[AlterableConfig]) -> None:
    resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=topic, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = cluster.ask_any(request, IncrementalAlterConfigsResponse, newest=1).responses
    if answer.error_code:
        raise error_for(answer.error_code, f"settings of topic {topic}", cluster, answer.error_message)


def target_digest_ranges(
    cluster: Cluster, begun: ClusterRestore, keys: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the offset ranges that the restore has written in the target."""
    ends = log_ends(cluster, list(keys), READ_COMMITTED)
    return {key: (begun.ends.get(key, one.log_start_offset), one.end_offset) for key, one in ends.items()}
