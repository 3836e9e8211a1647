"""Producer ids that never repeat."""

from __future__ import annotations

import json
import logging
import random
from pathlib import Path

import pytest

from tidelog.errors import StorageError
from tidelog.storage.producers.producer_ids import BLOCK_SIZE, HIGHEST_ID, LOWEST_ID, ProducerIds


def stored(directory: Path) -> int:
    return json.loads((directory / "tidelog-producer-ids.json").read_text())["next"]


def test_above_all_that_kafka_hands_out(tmp_path: Path) -> None:
    assert LOWEST_ID > 2**40 and HIGHEST_ID < 2**62
    for i in range(50):
        folder = tmp_path / str(i)
        folder.mkdir()
        assert LOWEST_ID <= ProducerIds(folder).next_id() <= HIGHEST_ID


def test_two_folders_do_not_meet(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = ProducerIds(tmp_path / "a").next_id(), ProducerIds(tmp_path / "b").next_id()
    assert abs(first - second) > 10**6


def test_never_the_same_across_restarts(tmp_path: Path) -> None:
    seen = set()
    for count in (1, 3, BLOCK_SIZE, BLOCK_SIZE + 1, 2 * BLOCK_SIZE + 5):
        ids = ProducerIds(tmp_path)
        for _ in range(count):
            producer_id = ids.next_id()
            assert producer_id not in seen and producer_id < stored(tmp_path)
            seen.add(producer_id)
    assert max(seen) - min(seen) < 20 * BLOCK_SIZE


def test_nothing_is_written_before_the_first_id(tmp_path: Path) -> None:
    ids = ProducerIds(tmp_path)
    assert list(tmp_path.iterdir()) == []
    ids.next_id()
    assert [path.name for path in tmp_path.iterdir()] == ["tidelog-producer-ids.json"]


@pytest.mark.parametrize(
    "damaged",
    [b"", b"\xff", b"[]", b"{}", b'{"version": 2, "next": 2305843009213694000}', b'{"version": 1, "next": true}']
    + [b'{"version": 1, "next": %d}' % number for number in (0, 2**40, 2**62 + 1)],
)
def test_a_damaged_file_begins_elsewhere(tmp_path: Path, damaged: bytes, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "tidelog-producer-ids.json").write_bytes(damaged)
    with caplog.at_level(logging.WARNING, "tidelog.storage"):
        assert LOWEST_ID <= ProducerIds(tmp_path, rng=random.Random(3)).next_id() <= HIGHEST_ID
    assert "start at a new random place" in caplog.text


def test_at_the_end_of_all_ids(tmp_path: Path) -> None:
    (tmp_path / "tidelog-producer-ids.json").write_text(json.dumps({"version": 1, "next": HIGHEST_ID - BLOCK_SIZE + 1}))
    ids = ProducerIds(tmp_path)
    last = [ids.next_id() for _ in range(BLOCK_SIZE)]
    assert last[-1] == HIGHEST_ID
    assert LOWEST_ID <= ids.next_id() < last[0]


def test_no_id_where_it_could_not_be_noted(tmp_path: Path) -> None:
    ids = ProducerIds(tmp_path / "gone")
    for _ in range(2):
        with pytest.raises(StorageError):
            ids.next_id()
    (tmp_path / "gone").mkdir()
    assert ids.next_id() < stored(tmp_path / "gone")
