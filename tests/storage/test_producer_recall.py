"""After a crash a producer may repeat any of its last five batches, as while the log was open.

Kafka 3.9.1 answers OUT_OF_ORDER_SEQUENCE_NUMBER to all but the last one then (seen with a killed broker), and the producer writes
them again under a new epoch.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.partition_logs import NOW_MS, bases, batch, open_log
from tidelog.errors import OutOfOrderSequenceError
from tidelog.records.builder import Producer
from tidelog.storage.loading import producer_recall


def written(producer_id: int, sequence: int, epoch: int = 0, count: int = 2) -> bytearray:
    return batch(count=count, timestamp=NOW_MS, producer=Producer(producer_id, epoch, sequence))


@pytest.mark.parametrize("segment_bytes", [1000, 10**6])
def test_the_last_five_batches_are_known_again(tmp_path: Path, segment_bytes: int) -> None:
    """Of each producer, also where the last segment holds but a few of them."""
    log = open_log(tmp_path, segment_bytes=segment_bytes)
    told = {}
    for number in range(7):
        for producer_id in (1, 2):
            told[producer_id, number] = log.append_as_leader(written(producer_id, 2 * number), 0).first_offset
    assert (len(bases(log)) > 1) == (segment_bytes == 1000)
    log.close_handlers()
    log = open_log(tmp_path, clean=False, segment_bytes=segment_bytes)
    end = log.log_end_offset
    for producer_id in (1, 2):
        for number in range(2, 7):
            again = log.append_as_leader(written(producer_id, 2 * number), 0)
            assert (again.is_duplicate, again.first_offset) == (True, told[producer_id, number])
        with pytest.raises(OutOfOrderSequenceError):
            log.append_as_leader(written(producer_id, 2), 0)
    assert log.log_end_offset == end
    log.append_as_leader(written(1, 14), 0)


@pytest.mark.parametrize("damaged", [0, 1])
def test_damage_that_was_flushed_keeps_no_log_from_loading(
    tmp_path: Path, damaged: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Below the recovery point, where nothing is recovered."""
    size = len(written(1, 0))
    log = open_log(tmp_path, segment_bytes=4 * size)
    for number in range(6):
        log.append_as_leader(written(1, 2 * number), 0)
    log.flush(force_active=True)
    log.close_handlers()
    path = tmp_path / "log-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[damaged * size + 8] = 0x80
    path.write_bytes(data)
    log = open_log(tmp_path, clean=False, recovery_point=12, segment_bytes=4 * size)
    assert log.log_end_offset == 12
    assert [each.first_sequence for each in log.producer_state.active_producers[1].batches] == [8, 10]
    assert "duplicates of producers' batches before it are not recognized" in caplog.text


def test_only_of_the_epoch_that_it_has_now(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for epoch, sequence in ((0, 0), (0, 2), (1, 0), (1, 2), (1, 4)):
        log.append_as_leader(written(1, sequence, epoch), 0)
    log.close_handlers()
    log = open_log(tmp_path, clean=False)
    assert [each.first_sequence for each in log.producer_state.active_producers[1].batches] == [0, 2, 4]
    assert [each.first_offset for each in log.producer_state.active_producers[1].batches] == [4, 6, 8]


def test_only_the_end_of_the_log_is_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the last index entry before the bytes that are looked at."""
    log = open_log(tmp_path, index_interval_bytes=300)
    sequences = {1: 0, 2: 0}
    for number in range(60):
        producer_id = 1 if number in (10, 56) else 2
        log.append_as_leader(written(producer_id, sequences[producer_id]), 0)
        sequences[producer_id] += 2
    log.close_handlers()
    monkeypatch.setattr(producer_recall, "RECALLED_BYTES", 800)
    log = open_log(tmp_path, index_interval_bytes=300, clean=False)
    entries = log.producer_state.active_producers
    assert [each.first_sequence for each in entries[1].batches] == [2]
    assert len(entries[2].batches) == 5
