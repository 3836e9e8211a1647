"""A replay: its window and target, which are fixed when it is first started, and stored next to its offset map.

`<map folder>/replay.json` has the request, the job's id, and each partition's offsets `[start, end)`:

| in the request | fixed at the first start as |
|---|---|
| times | epoch ms: `-3d` means the same three days when the replay is resumed |
| the end | each partition's last stable offset: later appends are excluded, however early their timestamps |
| the start | the first offset that must be read for the window |

A replay that is started again with the same folder continues at the position that the target's transactions committed. If the
source has since lost records of the window that are not yet copied, an error is raised.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tidelog.client.connections.cluster import Cluster
from tidelog.copying.column_rebuilding import TimeRule
from tidelog.copying.copier import CopyTask, committed_positions
from tidelog.copying.copy_plan import CLIENT_ID, PlannedPartition, plan_copy
from tidelog.copying.offset_map_file import map_path, read_state
from tidelog.copying.source_batches import CopyRules
from tidelog.copying.target_topics import TopicShape, ensure_topics, shapes_of
from tidelog.errors import InvalidArgumentError, OffsetOutOfRangeError
from tidelog.formats.json_files import make_folder, read_json, understanding, write_new_json
from tidelog.model import TopicPartition
from tidelog.sources.opening import kind_of, open_source, settled
from tidelog.sources.source import Source
from tidelog.sources.split import Split
from tidelog.times import format_time

FILE_NAME = "replay.json"
VERSION = 1
_WHAT = "the file of a replay"

KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", "message.timestamp.type": "CreateTime"}
"""Settings of a target topic that a replay creates. They keep all old records, with their timestamps."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """The request. Times are in epoch ms, None for no bound. `source` is a data folder or brokers, `target` is brokers."""

    source: str
    topic: str
    target: str
    target_topic: str
    start_ms: int | None = None
    end_ms: int | None = None
    partitions: tuple[int, ...] | None = None
    shift_ms: int = 0
    time: TimeRule = TimeRule.PRODUCER

    def __post_init__(self) -> None:
        # Workers have different working directories.
        object.__setattr__(self, "source", settled(self.source))
        if not kind_of(self.target).is_cluster:
            raise InvalidArgumentError("the target of a replay must be brokers", found=self.target, expected="host:port")
        if self.start_ms is not None and self.end_ms is not None and self.end_ms < self.start_ms:
            raise InvalidArgumentError(
                f"the window ends at {format_time(self.end_ms)}, before its start {format_time(self.start_ms)}"
            )

    @property
    def rules(self) -> CopyRules:
        """Return the rules for timestamps."""
        return CopyRules(self.time, self.shift_ms)


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay, as stored in its file."""

    job_id: str
    request: ReplayRequest
    target_cluster: str | None
    """The target's cluster id; None if it has none."""
    ranges: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Partition → offsets `[start, end)`."""

    def targets(self) -> dict[TopicPartition, TopicPartition]:
        """Return the target of each source partition."""
        topic, target_topic = self.request.topic, self.request.target_topic
        return {TopicPartition(topic, number): TopicPartition(target_topic, number) for number in self.ranges}


def prepare(request: ReplayRequest, map_dir: str | os.PathLike[str]) -> tuple[Replay, list[CopyTask]]:
    """Begin or resume a replay. Return the replay and the remaining copy tasks, the largest first.

    A missing target topic is created, with the source's number of partitions, unlimited retention, and CreateTime.

    Raises:
        InvalidArgumentError: the folder has the map of a different replay; source and target are the same topic; the
            target's topic has too few partitions; the target's address now belongs to a different cluster.
        OffsetOutOfRangeError: records that are not yet copied no longer exist.
        CorruptDataError, StorageError: the folder's files.
        Also raises the errors of `plan_copy` and of the target's brokers.
    """
    folder = Path(map_dir).absolute()
    replay = read_replay(folder)
    with Cluster.at(request.target, CLIENT_ID) as target:
        target.topics()
        if replay is None:
            replay = _begin(request, target, folder)
        # If two replays begin at the same time, the first one writes the file, and both use it.
        _check_same(replay, request, target, folder)
        # Use the addresses and the connection's configuration of this request, not the stored ones.
        replay = replace(replay, request=replace(replay.request, source=request.source, target=request.target))
        _check_partitions(replay, target)
        positions = committed_positions(target, replay.job_id, replay.targets(), require_stable=False)
    return replay, _tasks(replay, folder, positions)


def remembered(request: ReplayRequest, map_dir: str | os.PathLike[str], is_relative: Sequence[bool]) -> ReplayRequest:
    """Return the request with its relative times replaced by the times stored in the folder's replay, if there is one."""
    replay = read_replay(Path(map_dir).absolute())
    if replay is None:
        return request
    start_ms = replay.request.start_ms if is_relative[0] else request.start_ms
    end_ms = replay.request.end_ms if is_relative[1] else request.end_ms
    return replace(request, start_ms=start_ms, end_ms=end_ms)


def read_replay(folder: Path) -> Replay | None:
    """Return the replay of a map folder, None if there is none. Raises CorruptDataError, StorageError."""
    path = folder / FILE_NAME
    found = read_json(path, VERSION, _WHAT)
    if found is None:
        return None
    with understanding(path, _WHAT):
        asked = dict(found["request"])
        asked["time"] = TimeRule(asked["time"])
        asked |= {name: None if asked[name] is None else int(asked[name]) for name in ("start_ms", "end_ms", "shift_ms")}
        asked["partitions"] = None if asked["partitions"] is None else tuple(asked["partitions"])
        ranges = {int(number): (int(start), int(end)) for number, (start, end) in found["ranges"].items()}
        return Replay(found["job_id"], ReplayRequest(**asked), found["target_cluster"], ranges)


def _write(replay: Replay, folder: Path) -> bool:
    """Write the file of a new replay. Return False if another replay has written its file in this folder meanwhile."""
    asked = asdict(replay.request) | {"time": replay.request.time.value}
    content = {
        "job_id": replay.job_id,
        "request": asked,
        "target_cluster": replay.target_cluster,
        "ranges": {str(number): offsets for number, offsets in replay.ranges.items()},
    }
    make_folder(folder)
    return write_new_json(folder / FILE_NAME, VERSION, content, indent=1)


def _begin(request: ReplayRequest, target: Cluster, folder: Path) -> Replay:
    if folder.exists() and any(folder.glob("*.offsetmap")):
        raise InvalidArgumentError("the folder has the offset maps of a different copy", path=folder)
    with open_source(request.source) as source:
        shape = shapes_of(source, [request.topic])[request.topic]
        if _is_of(source, target) and request.topic == request.target_topic and _is_same_topic(source, request.topic, target):
            raise InvalidArgumentError("a replay cannot write to the topic that it reads", found=request.topic)
        planned = plan_copy(
            source, request.topic, start_ms=request.start_ms, end_ms=request.end_ms, partitions=request.partitions
        )
    configs = {**KEPT, **{key: value for key, value in shape.configs.items() if key == "max.message.bytes"}}
    if request.target_topic not in target.topics():
        ensure_topics(target, {request.target_topic: TopicShape(shape.partitions, configs)})
    ranges = {part.source.partition: _range(part) for part in planned}
    replay = Replay(f"tidelog-replay-{secrets.token_hex(6)}", request, target.cluster_id, ranges)
    if not _write(replay, folder):
        began = read_replay(folder)
        assert began is not None
        return began
    return replay


def _is_of(source: Source, target: Cluster) -> bool:
    """Whether the source is the target cluster itself, or a data folder (or a copy of one) of one of its brokers."""
    cluster_id = source.cluster_id()
    return cluster_id is not None and cluster_id == target.cluster_id


def _is_same_topic(source: Source, topic: str, target: Cluster) -> bool:
    """Whether the source's topic and the target's are the same topic, not an earlier, deleted topic with the same name."""
    there = target.topics().get(topic)
    if source.cluster is not None or there is None:
        return source.cluster is not None
    known = source.topic_ids([TopicPartition(topic, source.partitions(topic)[0])]).get(topic)
    return known is None or there.topic_id.int == 0 or known == there.topic_id


def _range(part: PlannedPartition) -> tuple[int, int]:
    """Return the offsets to be read. For a data folder, the plan knows the first batch that may have records of the window."""
    if not part.splits:
        return part.end_offset, part.end_offset
    return max(part.start_offset, part.splits[0].first_offset), part.end_offset


def _check_same(replay: Replay, request: ReplayRequest, target: Cluster, folder: Path) -> None:
    """Raise InvalidArgumentError if the folder belongs to a different replay. Addresses may change, clusters may not."""
    same = replace(request, target=replay.request.target, source=replay.request.source)
    if kind_of(request.source) != kind_of(replay.request.source) or same != replay.request:
        raise InvalidArgumentError(
            "the folder has the offset map of a different replay",
            path=folder / FILE_NAME,
            found=_words(replay.request),
            expected=_words(request),
        )
    if replay.target_cluster != target.cluster_id:
        raise InvalidArgumentError(
            "the replay was started with a different target cluster",
            path=request.target,
            found=target.cluster_id,
            expected=replay.target_cluster,
        )


def _words(request: ReplayRequest) -> str:
    start = "..." if request.start_ms is None else format_time(request.start_ms)
    end = "..." if request.end_ms is None else format_time(request.end_ms)
    parts = "" if request.partitions is None else f" partitions {', '.join(map(str, request.partitions))}"
    shift = f", moved by {request.shift_ms} ms" if request.shift_ms else ""
    rule = "" if request.time is TimeRule.PRODUCER else ", the log's times"
    return f"{request.topic}{parts} [{start}, {end}) to {request.target_topic}{shift}{rule}"


def _check_partitions(replay: Replay, target: Cluster) -> None:
    has = target.topic(replay.request.target_topic).partitions
    missing = sorted(set(replay.ranges) - set(has))
    if missing:
        raise InvalidArgumentError(
            f"topic {replay.request.target_topic} of the target has too few partitions",
            found=len(has),
            expected=f"at least {missing[-1] + 1}",
        )


def _tasks(replay: Replay, folder: Path, positions: Mapping[TopicPartition, int]) -> list[CopyTask]:
    request, targets = replay.request, replay.targets()
    left: dict[int, tuple[int, int]] = {}
    tasks: list[CopyTask] = []
    for source in targets:
        start, end = replay.ranges[source.partition]
        state = read_state(map_path(folder, source))
        confirmed = start if state is None else max(start, state.next_source_offset)
        # The target may expire its groups' offsets after some days. The map remains.
        position = max(confirmed, positions.get(source, start))
        if position < end:
            left[source.partition] = (position, end)
        elif confirmed < end:
            # The copier was killed between the last commit and its confirmation: nothing is left to copy, but the map must be
            # settled.
            tasks.append(_task(replay, folder, source, ()))
    for part in _planned(request, left):
        position, end = left[part.source.partition]
        if part.log_start_offset > position:
            raise OffsetOutOfRangeError(
                f"records of the replay no longer exist: the log of {part.source.topic}-{part.source.partition} starts at "
                f"{part.log_start_offset}, but only offsets below {position} were copied",
                path=request.source,
            )
        if part.end_offset < end:
            raise OffsetOutOfRangeError(
                f"records of the replay no longer exist: {part.source.topic}-{part.source.partition} ended at offset {end} when "
                f"the replay began, and now ends at {part.end_offset}",
                path=request.source,
            )
        tasks.append(_task(replay, folder, part.source, part.splits))
    return sorted(tasks, key=lambda task: task.size_bytes, reverse=True)


def _task(replay: Replay, folder: Path, source: TopicPartition, splits: tuple[Split, ...]) -> CopyTask:
    start, end = replay.ranges[source.partition]
    return CopyTask(
        job_id=replay.job_id,
        source=source,
        splits=splits,
        start_offset=start,
        end_offset=end,
        brokers=replay.request.target,
        target=replay.targets()[source],
        map_dir=os.fspath(folder),
        rules=replay.request.rules,
    )


def _planned(request: ReplayRequest, offsets: Mapping[int, tuple[int, int]]) -> Iterable[PlannedPartition]:
    if not offsets:
        return ()
    with open_source(request.source) as source:
        return plan_copy(source, request.topic, start_ms=request.start_ms, end_ms=request.end_ms, offsets=dict(offsets))
