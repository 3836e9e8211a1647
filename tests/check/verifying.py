"""Partition folders verified, and golden ones to damage."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.reader.golden import GOLDEN
from tidelog.check.finding import Finding
from tidelog.check.folder_indexes import VerifyOptions, verify_partitions
from tidelog.check.partitions import PartitionToVerify, VerifiedPartition
from tidelog.reader.log import Log

INTERVAL_BYTES = 512
"""index.interval.bytes of the golden topics; Kafka's own topics have 4096."""


def golden_partitions(release: str, *kinds: str) -> list[Path]:
    """The folders of partitions, clean ("log") or copied while the broker ran ("live")."""
    return sorted(path for kind in kinds for path in (GOLDEN / release / kind).iterdir() if path.is_dir())


def verified(folder: Path, interval_bytes: int | None = None, **options: object) -> VerifiedPartition:
    """Verify one partition."""
    (one,) = verify_partitions(
        [PartitionToVerify(lambda: Log.open(folder))],
        VerifyOptions(interval_bytes, **options),  # type: ignore[arg-type]
    )
    return one


def faults(folder: Path, interval_bytes: int | None = None, **options: object) -> list[Finding]:
    return [finding for finding in verified(folder, interval_bytes, **options).findings if finding.is_fault]


def notes(folder: Path, interval_bytes: int | None = None) -> list[str]:
    """What is noted, without where."""
    return [finding.what for finding in verified(folder, interval_bytes).findings if not finding.is_fault]


def copied(folder: Path, target: Path) -> Path:
    """Copy a partition; its name stays."""
    place = target / folder.name
    shutil.copytree(folder, place)
    return place
