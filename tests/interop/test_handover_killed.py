"""A writing Tidelog is killed; its folder is handed over all the same, Kafka goes on with it, and Tidelog with Kafka's."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.seen import UNCOMMITTED, differences, see, serve
from tests.interop.test_handover import hand_over
from tests.kafka import Kafka391, dump_log_segments
from tests.kafka.clients import NewRow, consume, produce
from tests.kafka.tools import complaints
from tidelog.clock import SystemClock
from tidelog.records.builder import build_batch_v2
from tidelog.records.records import Record
from tidelog.storage.log_manager import LogManager

NOW_MS = int(time.time() * 1000)
CODECS = ("producer", "gzip", "snappy", "lz4", "zstd")
SETTINGS = {
    **{f"killed-{codec}": {"compression.type": codec} for codec in CODECS},
    "killed-append-time": {"message.timestamp.type": "LogAppendTime"},
}
BASE = {"segment.bytes": 8000, "index.interval.bytes": 400, "retention.ms": -1}

WRITING = """
import random, sys
from tests.crash.history import Writer
from tests.interop.test_handover_killed import BASE, NOW_MS, SETTINGS
from tidelog.clock import SystemClock
from tidelog.storage.log_manager import LogManager
with LogManager(sys.argv[1], SystemClock()) as manager:
    logs = []
    for number, (name, settings) in enumerate(SETTINGS.items()):
        manager.create_topic(name, 1, {**BASE, **settings})
        logs.append((manager.log(name, 0), Writer(0, random.Random(number), start_ms=NOW_MS - 3_600_000)))
    while True:
        for log, writer in logs:
            writer.append(log, 2)
            log.update_high_watermark(log.log_end_offset)
        print(log.log_end_offset, flush=True)
"""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka391]:
    with Kafka391(tmp_path_factory.mktemp("taking-over-the-killed")) as broker:
        yield broker


def write_and_die(folder: Path) -> None:
    """Let a process append until it is killed, in the middle of something."""
    with subprocess.Popen([sys.executable, "-c", WRITING, folder], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) > 500:
                break
        process.kill()


def test_killed_handed_over_gone_on_with(kafka: Kafka391, tmp_path: Path) -> None:
    write_and_die(tmp_path)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    kafka.topics |= dict.fromkeys(SETTINGS, 1)
    hand_over(tmp_path, kafka)
    assert not list(kafka.data.glob("*-stray"))
    assert not list(kafka.data.glob("*-delete"))
    with LogManager(tmp_path, SystemClock()) as manager:
        ours = {}
        for name in SETTINGS:
            log = manager.log(name, 0)
            log.update_high_watermark(log.log_end_offset)
            assert len(log.segments.base_offsets) > 2
            ours[name] = see(log)
    theirs = serve(kafka, {name: seen.targets for name, seen in ours.items()})
    assert not differences(ours, theirs)
    for name in SETTINGS:
        rows = [NewRow(b"k", b"from Kafka %d" % n, NOW_MS + n) for n in range(200)]
        # Not idempotent: the writer has ids that Kafka gives out, too, and one of them has a transaction open.
        produce(kafka.bootstrap, name, rows, compression_type="lz4", enable_idempotence=False, batch_records=5)
    kafka.stop()
    for name in SETTINGS:
        files = sorted(path for path in kafka.partition_folder(name).iterdir() if path.suffix in (".log", ".index", ".timeindex"))
        assert complaints(dump_log_segments(files, "--deep-iteration")) == []
    with LogManager(kafka.data, SystemClock()) as manager:
        for name, before in theirs.items():
            log = manager.log(name, 0)
            epoch = log.leader_epochs.latest
            assert epoch is not None and epoch.epoch > 0
            end = log.log_end_offset
            assert see(log, [NOW_MS + 10], without=()).rows[UNCOMMITTED][-1].value == b"from Kafka 199"
            assert see(log, before.targets).rows[UNCOMMITTED][: len(before.rows[UNCOMMITTED])] == before.rows[UNCOMMITTED]
            records = [Record(n, NOW_MS + 1000 + n, 0, b"k", b"from Tidelog") for n in range(3)]
            assert log.append_as_leader(build_batch_v2(records), epoch.epoch).first_offset == end
            log.update_high_watermark(log.log_end_offset)
    kafka.start()
    for name in random.Random(1).sample(sorted(SETTINGS), 3):
        assert [row.value for row in consume(kafka.bootstrap, name)][-3:] == [b"from Tidelog"] * 3
    assert not list(kafka.data.glob("*-stray"))
