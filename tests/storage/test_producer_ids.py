"""Producer ids that never repeat."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.storage.partition_logs import NOW_MS
from tidelog.clock import ManualClock
from tidelog.errors import StorageError
from tidelog.metadata.records import ProducerIdsRecord
from tidelog.reader.metadata_log import METADATA_DIR, read_metadata_log
from tidelog.storage.metadata.metadata_store import MetadataStore
from tidelog.storage.producers.producer_ids import BLOCK_SIZE, HIGHEST_ID, LOWEST_ID, ProducerIds


@contextmanager
def opened(directory: Path, before: int = 0) -> Iterator[ProducerIds]:
    """The ids of a folder, of which `before` is what its metadata says."""
    directory.mkdir(exist_ok=True)
    store = MetadataStore.open(directory, 1, None, ManualClock(NOW_MS))
    if before:
        store.commit([ProducerIdsRecord(1, -1, before)])
    yield ProducerIds(store)


def stored(directory: Path) -> int:
    log = read_metadata_log(directory)
    return 0 if log is None else log.image.next_producer_id


def test_above_all_that_kafka_hands_out(tmp_path: Path) -> None:
    assert LOWEST_ID > 2**40 and HIGHEST_ID < 2**62
    for i in range(50):
        with opened(tmp_path / str(i)) as ids:
            assert LOWEST_ID <= ids.next_id() <= HIGHEST_ID


def test_two_folders_do_not_meet(tmp_path: Path) -> None:
    with opened(tmp_path / "a") as one, opened(tmp_path / "b") as other:
        assert abs(one.next_id() - other.next_id()) > 10**6


def test_never_the_same_across_restarts(tmp_path: Path) -> None:
    seen = set()
    for count in (1, 3, BLOCK_SIZE, BLOCK_SIZE + 1, 2 * BLOCK_SIZE + 5):
        with opened(tmp_path) as ids:
            for _ in range(count):
                producer_id = ids.next_id()
                assert producer_id not in seen and producer_id < stored(tmp_path)
                seen.add(producer_id)
    assert max(seen) - min(seen) < 20 * BLOCK_SIZE


def test_where_kafka_has_counted_it_goes_on(tmp_path: Path) -> None:
    with opened(tmp_path, before=3000) as ids:
        assert ids.next_id() == 3000
    with opened(tmp_path) as ids:
        assert ids.next_id() == 4000


def test_nothing_is_written_before_the_first_id(tmp_path: Path) -> None:
    with opened(tmp_path) as ids:
        assert list(tmp_path.iterdir()) == []
        ids.next_id()
        assert [path.name for path in tmp_path.iterdir()] == [METADATA_DIR]


def test_at_the_end_of_all_ids(tmp_path: Path) -> None:
    with opened(tmp_path, before=HIGHEST_ID - BLOCK_SIZE + 1) as ids:
        last = [ids.next_id() for _ in range(BLOCK_SIZE)]
        assert last[-1] == HIGHEST_ID
        assert LOWEST_ID <= ids.next_id() < last[0]


def test_no_id_where_it_could_not_be_noted(tmp_path: Path) -> None:
    with opened(tmp_path) as ids:
        (tmp_path / METADATA_DIR).write_text("in the way")
        for _ in range(2):
            with pytest.raises(StorageError):
                ids.next_id()
        (tmp_path / METADATA_DIR).unlink()
        assert ids.next_id() < stored(tmp_path)
