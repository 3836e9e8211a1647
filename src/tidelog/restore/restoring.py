"""Runs a planned restore into a folder or a cluster, and compares the result with the backup."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from tidelog.backup.backup import open_backup
from tidelog.backup.layout import HEAD
from tidelog.backup.verify import refuse_damaged
from tidelog.client.connections.cluster import Cluster
from tidelog.clock import Clock
from tidelog.config import INT64_MAX
from tidelog.copying.copy_plan import CLIENT_ID
from tidelog.errors import InvalidArgumentError, PointExpiredError, TopicExistsError
from tidelog.formats.dir_lock import DirLock
from tidelog.formats.json_files import make_folder, read_json, write_new_json
from tidelog.model import OFFSETS_TOPIC, TopicPartition
from tidelog.restore.cuts import RestorePlan, positions_of
from tidelog.restore.digest import Digest
from tidelog.restore.folder_groups import write_groups
from tidelog.restore.folder_target import groups_of, restore_topics
from tidelog.restore.moment import Positions
from tidelog.restore.points import Points
from tidelog.restore.read_back import ReadBack, Written, read_back
from tidelog.restore.request import check_same
from tidelog.restore.result import RestoredPartition
from tidelog.restore.runner import Runner, on_threads
from tidelog.sources.opening import kind_of, open_source
from tidelog.sources.source import Source
from tidelog.storage.folder.closed_folder import claim_closed
from tidelog.storage.folder.data_folder import check_is_data_folder, is_claimed
from tidelog.storage.folder.folder_topics import read_topics
from tidelog.storage.log_manager import LogManager

FILE_NAME = "tidelog-restore.json"
DONE_FILE = "restored.json"
"""A file in the work folder. It means that groups and settings have been set, and that applications may have continued since."""

VERSION = 1

_WHAT = "a restore's file"
_WAS_EMPTY = "folder_was_empty"

Progress = Callable[[int], object]


@dataclass(slots=True)
class RestoreReport:
    """The result of a restore."""

    plan: RestorePlan
    partitions: list[RestoredPartition] = field(default_factory=list)
    groups: dict[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    """Restored positions: group → partition of the target → offset."""
    left_alone: dict[str, str] = field(default_factory=dict)
    """Groups whose positions were not restored, with the reason."""
    notes: list[str] = field(default_factory=list)
    """Settings that the target refused."""
    digests: dict[TopicPartition, Digest] = field(default_factory=dict)
    """Digests of the target's partitions that were read back and match the backup."""
    differences: list[str] = field(default_factory=list)
    """A text for each partition that was read back and differs from the backup."""


def work_folder(plan: RestorePlan, state: Path) -> Path:
    """Return the folder below `state` for the offset maps of a restore into a cluster.

    Restores with the same identity and target get the same folder, others get different ones.
    """
    identity = sha256(json.dumps(plan.identity, sort_keys=True).encode()).hexdigest()
    name = f"{plan.backup_id[:8]}-{plan.point.sequence}-{plan.request.target}-{identity[:12]}"
    return state / "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in name)


def restore(
    plan: RestorePlan,
    clock: Clock,
    *,
    work: Path,
    progress: Progress = lambda size_bytes: None,
    verify: bool = True,
    run: Runner = on_threads,
) -> RestoreReport:
    """Run a plan. `work` is the folder for the offset maps of a restore into a cluster. Call it again to continue after a crash.

    `run` runs the tasks that copy a cluster's partitions and read them back.

    Raises:
        TopicExistsError: a topic already exists.
        InvalidArgumentError: the target holds a different restore.
        PointExpiredError: `backup expire` has removed the point.
        StorageError, BrokerError, BrokerUnreachableError, CorruptDataError
    """
    with Points() as points, open_backup(plan.request.backup).naming_expiry(*plan.sequences):
        if kind_of(plan.request.target).is_cluster:
            return _into_cluster(plan, points, work, progress, verify, run)
        return _into_folder(plan, points, plan.request.folder, clock, progress, verify)


def _refuse_damaged(plan: RestorePlan) -> None:
    """Check every object of the backup that the plan needs, including indexes, before anything is written. Raises
    CorruptDataError.
    """
    entries = [topic.entry for topic in (*plan.topics, *plan.internal)]
    refuse_damaged(open_backup(plan.request.backup), entries, min(plan.sequences))


def _refuse_place(folder: Path) -> None:
    """Raise InvalidArgumentError if the folder is a backup, StorageError if it holds other files or a broker is running on it."""
    if (folder / HEAD).exists():
        raise InvalidArgumentError("the target folder is a backup: choose a different folder", path=folder)
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / FILE_NAME).exists():
            check_is_data_folder(folder)
        with DirLock(folder) as lock:
            lock.remove_if_new()


def _into_folder(
    plan: RestorePlan, points: Points, folder: Path, clock: Clock, progress: Progress, verify: bool
) -> RestoreReport:
    report = RestoreReport(plan)
    _refuse_place(folder)
    _refuse_damaged(plan)
    there = _begun(plan, folder)
    for topic in plan.topics:
        known = there.get(topic.name)
        if known is not None and known != topic.manifest.topic_id:
            raise TopicExistsError(f"topic {topic.name!r} already exists: use --rename, or a different folder", path=folder)
        if known is not None:
            report.partitions += [topic.result(cut, cut.end_offset, None, 0) for cut in topic.partitions]
    for group in groups_of(topic for topic in plan.topics if topic.name not in there):
        report.partitions += restore_topics(plan, group, points, folder, clock, progress)
    report.partitions.sort(key=lambda one: one.source)
    positions = _positions(plan, points)
    is_whole = not plan.request.renames and plan.request.groups is None
    if OFFSETS_TOPIC in there:
        own = {topic.manifest.topic_id for topic in plan.internal}
        if there[OFFSETS_TOPIC] not in own:
            report.left_alone = dict.fromkeys(positions, f"the folder already has {OFFSETS_TOPIC}")
            positions = {}
    elif is_whole:
        for group in groups_of(topic for topic in plan.internal if topic.name not in there):
            restore_topics(plan, group, points, folder, clock, progress)
    elif positions:
        write_groups(folder, positions, clock)
    # Brokers identify a folder by its meta.properties, and skip recovery after a clean shutdown.
    if _is_own(folder):
        claim_closed(folder, clock)
    else:
        with LogManager(folder, clock, properties={"producer.id.expiration.ms": INT64_MAX}) as manager:
            manager.producer_ids.keep_clear()  # A new producer must not get the id of a producer in the backup.
    report.groups = {name: {key: one.offset for key, one in offsets.items()} for name, offsets in positions.items()}
    if verify:
        with open_source(str(folder)) as target:
            report.digests, report.differences = _compared(plan, points, target, on_threads)
    return report


def refuse_target(plan: RestorePlan, work: Path) -> None:
    """Check the target as `restore` does, without writing anything.

    Raises TopicExistsError, InvalidArgumentError, StorageError, BrokerError, BrokerUnreachableError.
    """
    if kind_of(plan.request.target).is_cluster:
        from tidelog.restore import cluster_target

        with Cluster.at(plan.request.target, CLIENT_ID) as cluster:
            cluster.reach().refresh(None)
            if cluster_target.begun_in(plan, cluster, work) is None:
                cluster_target.refuse_full(plan, cluster)
        return
    folder = plan.request.folder
    _refuse_place(folder)
    if folder.is_dir():
        _there(plan, folder)


def _there(plan: RestorePlan, folder: Path) -> tuple[dict[str, object], bool]:
    """Return the ids of the topics in the target folder, by name, and whether the restore into this folder has begun.

    Raises TopicExistsError, InvalidArgumentError if the folder holds a different restore.
    """
    there: dict[str, object] = {name: topic.topic_id for name, topic in read_topics(folder).items()}
    known = read_json(folder / FILE_NAME, VERSION, _WHAT)
    if known is not None:
        check_same(known.get("restore") or {}, plan.identity, folder / FILE_NAME, "the folder", "use a different folder")
        return there, True
    existing = sorted(set(there) & {topic.name for topic in plan.topics})
    if existing:
        raise TopicExistsError(f"topics already exist: {', '.join(existing)}: use --rename, or a different folder", path=folder)
    return there, False


def _begun(plan: RestorePlan, folder: Path) -> dict[str, object]:
    """Record the restore in the folder, and return the ids of the folder's topics."""
    make_folder(folder)
    there, is_begun = _there(plan, folder)
    if not is_begun:
        was_empty = not any(folder.iterdir())
        write_new_json(folder / FILE_NAME, VERSION, {"restore": plan.identity, _WAS_EMPTY: was_empty}, indent=1)
    return there


def _is_own(folder: Path) -> bool:
    """Whether this restore has written everything in the folder: it was empty, and no broker has started on it since."""
    known = read_json(folder / FILE_NAME, VERSION, _WHAT) or {}
    return known.get(_WAS_EMPTY) is True and not is_claimed(folder)


def _into_cluster(plan: RestorePlan, points: Points, work: Path, progress: Progress, verify: bool, run: Runner) -> RestoreReport:
    report = RestoreReport(plan)
    with Cluster.at(plan.request.target, CLIENT_ID) as cluster:
        cluster.reach().refresh(None)
        with ThreadPoolExecutor(1, "tidelog-check") as pool:
            checked = pool.submit(_refuse_damaged, plan)
            from tidelog.restore import cluster_target  # The import takes long, and checksums leave a processor free.

            checked.result()
        begun = cluster_target.begin(plan, cluster, work)
        done = cluster_target.copy(plan, points, begun, work, progress, run)
        report.partitions += sorted(done, key=lambda one: one.target)
        is_again = (work / DONE_FILE).exists()
        if is_again:
            report.notes.append("this restore has already been completed: groups and settings are left unchanged")
        positions = {} if is_again else _positions(plan, points, renamed=False)
        for group, offsets, why in cluster_target.restore_groups(plan, cluster, begun, work, positions):
            if why:
                report.left_alone[group] = why
            else:
                report.groups[group] = offsets
        if verify:
            written = cluster_target.written_ranges(plan, cluster, begun, work)
            with open_source(plan.request.target) as target:
                report.digests, report.differences = _compared(plan, points, target, run, written)
        if not is_again:
            report.notes += cluster_target.settle_topics(plan, cluster, begun)
            write_new_json(work / DONE_FILE, VERSION, {}, indent=1)
    return report


def _compared(
    plan: RestorePlan, points: Points, target: Source, run: Runner, written: Mapping[TopicPartition, Written] | None = None
) -> ReadBack:
    try:
        return read_back(plan, points, target, run, written)
    except PointExpiredError as error:
        text = f"everything was restored, but could not be compared with the backup: {error.message}"
        raise PointExpiredError(text, path=error.path) from error


def _positions(plan: RestorePlan, points: Points, *, renamed: bool = True) -> Positions:
    """Return the positions of the requested groups at the requested time, with the target's topic names."""
    offsets = next((topic for topic in plan.internal if topic.source == OFFSETS_TOPIC), None)
    if offsets is None:
        return {}
    found = positions_of(offsets, points)
    groups = plan.request.groups
    name_of = plan.request.name_of if renamed else (lambda name: name)
    return {
        group: {TopicPartition(name_of(key.topic), key.partition): one for key, one in sorted(committed.items())}
        for group, committed in sorted(found.items())
        if groups is None or group in groups
    }
