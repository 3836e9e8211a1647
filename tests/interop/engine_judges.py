"""Checks folders passed between Tidelog and Kafka with DumpLogSegments, Tidelog's own check, and a comparison.

`engine_rounds` calls these checks, `test_engine_folders` asserts on the results.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import tidelog
from tests.interop.engine_topics import BASE, Topic
from tests.kafka import dump_log_segments
from tests.kafka.tools import complaints
from tidelog.check.folder_indexes import VerifyOptions, verify_partitions
from tidelog.check.partitions import PartitionToVerify
from tidelog.clock import SystemClock
from tidelog.config import LogConfig
from tidelog.formats import names
from tidelog.formats.checkpoints import read_offset_checkpoint
from tidelog.formats.producer_snapshot import read_snapshot
from tidelog.model import METADATA_TOPIC, TopicPartition
from tidelog.storage.loading.loader import load
from tidelog.storage.scheduler import Scheduler


class Judgement(NamedTuple):
    """The tools' findings about a cleanly closed folder."""

    complaints: list[str]
    """The lines of DumpLogSegments that report faults."""
    sound_indexes: int
    indexes: int
    faults: list[str]
    """Tidelog's findings about wrong or missing index entries."""


def judge(data: Path) -> Judgement:
    """Run DumpLogSegments over every file of a data folder, and Tidelog's own check of indexes."""
    suffixes = (names.LOG_SUFFIX, names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX, names.SNAPSHOT_SUFFIX)
    folders = [path for path in data.glob("*-*") if not path.name.startswith(METADATA_TOPIC)]
    files = sorted(path for folder in folders for path in folder.glob("*") if path.suffix in suffixes)
    indexes = [path for path in files if path.suffix in suffixes[1:3]]
    found = complaints(dump_log_segments(files, "--deep-iteration", timeout_s=300))
    checked = dump_log_segments(indexes, "--index-sanity-check", timeout_s=300)
    found += complaints(checked)
    said = checked.count("passed sanity check") + checked.count(" is empty.")
    return Judgement(found, said, len(indexes), verify(data))


def verify(data: Path) -> list[str]:
    """Check the indexes of the topics written here for wrong or missing entries."""
    found = []
    folder = tidelog.LogDir(data)
    options = VerifyOptions(interval_bytes=int(BASE["index.interval.bytes"]))
    for path in sorted(data.glob("[!_]*-0")):
        topic = path.name.removesuffix("-0")
        partition = PartitionToVerify(functools.partial(folder.log, topic, 0))
        for verified in verify_partitions([partition], options):
            found += [str(finding) for finding in verified.findings if finding.is_fault]
    return found


def recover(data: Path, topics: Mapping[str, Topic]) -> dict[str, dict[str, object]]:
    """Let Tidelog recover these topics, configured as in Kafka, and return the result."""
    recovery_points = read_offset_checkpoint(data / names.RECOVERY_POINT_CHECKPOINT)
    log_start_offsets = read_offset_checkpoint(data / names.LOG_START_OFFSET_CHECKPOINT)
    clock, found = SystemClock(), {}
    for name, topic in topics.items():
        folder, key = data / names.log_dir_name(name, 0), TopicPartition(name, 0)
        log = load(
            folder,
            LogConfig.from_properties(dict(topic.kafka_settings)),
            clock,
            Scheduler(clock),
            had_clean_shutdown=False,
            recovery_point=recovery_points.get(key, 0),
            log_start_offset=log_start_offsets.get(key, 0),
        )
        log.flush()
        found[name] = contents(folder)
        log.close_handlers()
    return found


def contents(folder: Path) -> dict[str, object]:
    """Return a recovered folder's content in comparable form: without preallocated ends, snapshots as sets of entries."""
    found: dict[str, object] = {}
    for path in folder.iterdir():
        if path.suffix in (names.LOG_SUFFIX, names.TXN_INDEX_SUFFIX):
            found[path.name] = path.read_bytes()
        elif path.suffix in (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX):
            found[path.name] = path.read_bytes().rstrip(b"\0")
        elif path.suffix == names.SNAPSHOT_SUFFIX:
            found[path.name] = sorted(read_snapshot(path))
    return found
