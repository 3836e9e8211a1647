"""One walk for indexes, epochs and gaps: what the kernel collects on its way is what a walk over the headers finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.check.partition_rules import BatchFacts, batch_facts, joined_facts
from tidelog.check.partitions import PartitionToVerify, PartitionVerification
from tidelog.check.segments import examine_segment
from tidelog.formats.files import ReadOnlyFile
from tidelog.reader import Log, LogDir
from tidelog.records import CREATE_TIME, Record, build_batch_v2
from tidelog.records.patch import set_base_offset_and_epoch
from tidelog.storage.loading.log_scan import scan_log

GOLDEN = Path(__file__).parents[1] / "golden"
FOLDERS = sorted(path for path in GOLDEN.glob("kafka-*/log") if path.is_dir())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
def test_kafkas_folders(folder: Path) -> None:
    log_dir = LogDir(folder)
    seen = 0
    for topic, numbers in log_dir.topics().items():
        for number in numbers:

            def opened(topic: str = topic, number: int = number) -> Log:
                return log_dir.log(topic, number)

            partition = PartitionVerification(PartitionToVerify(opened))
            facts = [examine_segment(task).facts for task in partition.tasks]
            with opened() as log:
                expected = batch_facts(segment.headers() for segment in log.segments)
            assert None not in facts
            assert joined_facts(one for one in facts if one is not None) == expected
            seen += len(expected.epochs)
    assert seen or "0.10" in str(folder)


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([(0, 0), (1, 0), (2, 3), (3, 3), (4, 7)], BatchFacts([(0, 0, 1), (3, 2, 3), (7, 4, 4)], None)),
        ([(5, 1), (6, 1), (9, 1), (20, 2)], BatchFacts([(1, 5, 9), (2, 20, 20)], (7, 9))),
        ([(0, 4), (1, 3), (2, 4)], None),
    ],
    ids=["epochs", "gaps", "an epoch that falls"],
)
def test_epochs_and_gaps(tmp_path: Path, batches: list[tuple[int, int]], expected: BatchFacts | None) -> None:
    data = bytearray()
    for offset, epoch in batches:
        batch = bytearray(build_batch_v2([Record(offset, 1_600_000_000_000, CREATE_TIME, None, b"v")]))
        set_base_offset_and_epoch(batch, offset, epoch)
        data += batch
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data)
    with ReadOnlyFile(path) as file:
        scanned = scan_log(file, len(data), 0, 4096)
    assert not scanned.fault
    assert (None if scanned.epoch_spans is None else BatchFacts(scanned.epoch_spans, scanned.first_gap)) == expected
