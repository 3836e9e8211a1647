"""Headers that were walked: what they answer is what a plain reading of them gives, whoever walked them, in whatever pieces."""

from __future__ import annotations

import random
from itertools import accumulate
from pathlib import Path

import pytest

from tests.reader import hint_damage
from tests.reader.build import batch
from tidelog.errors import CorruptBatchError
from tidelog.formats.non_blocking_read import non_blocking
from tidelog.storage.segment import walked_headers
from tidelog.storage.segment.log_file import LogFile
from tidelog.storage.segment.walked_headers import NotWalkedError, WalkedHeaders, WalkedSegment


@pytest.fixture(autouse=True)
def _few_are_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walked_headers, "POINT_BATCHES", 3)
    monkeypatch.setattr(walked_headers, "POINT_BYTES", 400)
    monkeypatch.setattr(walked_headers, "PIECE_S", 0.0)


def written(path: Path, times: list[int]) -> LogFile:
    log = LogFile.open(path)
    for offset, time in enumerate(times):
        log.append(batch(offset, [time]))
    return log


def asked_elsewhere(headers: WalkedHeaders) -> NotWalkedError:
    with non_blocking(), pytest.raises(NotWalkedError) as raised:
        headers.largest()
    return raised.value


def test_they_answer_what_a_plain_reading_gives(tmp_path: Path) -> None:
    rng = random.Random(7)
    for seed in range(20):
        sample = hint_damage.write_log(tmp_path / str(seed), rng)
        path = rng.choice(hint_damage.logs_of(sample.directory))
        found = hint_damage.headers_of(path)
        log = LogFile.open(path, file_already_exists=True)
        latest = [-1, *accumulate((header.max_timestamp for header in found), max)]
        for _ in range(12):
            headers = WalkedHeaders(log, 0, int(path.stem))
            for _ in range(rng.randrange(1, 4)):
                number = rng.randrange(len(found))
                assert headers.largest_before(found[number].position) == latest[number]
                time = rng.choice(sample.times)
                first = next((header.position for header in found if header.max_timestamp >= time), None)
                reaching = headers.first_reaching(time)
                assert (reaching is None) == (first is None)
                assert reaching is None or first is None or reaching <= first
                offset = rng.randrange(found[0].base_offset, found[-1].next_offset)
                holder = next(header.position for header in found if header.last_offset >= offset)
                assert headers.floor(offset) <= holder
            assert headers.largest() == latest[-1]
            if len(found) > 1 and found[1].position > 1:
                with pytest.raises(CorruptBatchError):
                    headers.largest_before(found[1].position - 1)
        log.close()


def test_two_that_walk_from_the_same_place_count_once(tmp_path: Path) -> None:
    log = written(tmp_path / "0.log", list(range(1000, 1040)))
    headers = WalkedHeaders(log, 0, 0)
    one, other = asked_elsewhere(headers), asked_elsewhere(headers)
    stale = asked_elsewhere(headers)
    one.prefetch()
    other.prefetch()
    third = asked_elsewhere(headers)
    third.prefetch()
    stale.prefetch()
    positions = [header.position for header in hint_damage.headers_of(tmp_path / "0.log")]
    assert [headers.largest_before(position) for position in positions] == [-1, *range(1000, 1039)]
    log.close()


def test_a_log_that_grows_by_single_batches_keeps_few_points(tmp_path: Path) -> None:
    log = written(tmp_path / "0.log", [])
    headers = WalkedHeaders(log, 0, 0)
    for number in range(60):
        log.append(batch(number, [1000 + number]))
        assert headers.largest() == 1000 + number
    assert headers.size_bytes <= 24 * (2 + 60 // 2)
    log.close()


def test_memory_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently used segments are forgotten, and asked again they know the same."""
    monkeypatch.setattr(walked_headers, "MAX_KEPT_BYTES", 2000)
    log = written(tmp_path / "0.log", list(range(1000, 1090)))
    segments = [WalkedSegment(log, 0) for _ in range(9)]
    for segment in segments:
        assert segment.beginning_at(0).largest() == 1089
        segment.beginning_at(0)
    assert sum(segment.size_bytes for segment in segments) <= 2000 + segments[-1].size_bytes
    assert not segments[0].size_bytes
    assert segments[0].beginning_at(0).largest() == 1089
    log.close()


def test_what_is_wrong_with_a_batch_is_reported_where_it_is_asked_for(tmp_path: Path) -> None:
    log = written(tmp_path / "0.log", list(range(1000, 1040)))
    found = hint_damage.headers_of(tmp_path / "0.log")
    with (tmp_path / "0.log").open("r+b") as file:
        file.seek(found[20].position + 16)
        file.write(b"\x07")
    headers = WalkedHeaders(log, 0, 0)
    for _ in range(60):
        try:
            with non_blocking():
                headers.largest()
        except NotWalkedError as missing:
            missing.prefetch()
        except CorruptBatchError as error:
            assert error.position == found[20].position
            break
    else:
        pytest.fail("nothing was reported")
    assert headers.largest_before(found[20].position) == 1019
    log.close()
