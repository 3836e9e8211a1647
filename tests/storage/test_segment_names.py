"""Segments whose names lie, in a folder that is owned: each record is served, or there is an error; none is removed.

A log of thirty records, ten a segment. Some of its segments are renamed, copied under another name or joined by empty ones.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.storage.partition_logs import batch, offsets, open_log
from tests.storage.test_loader_clean import closed
from tidelog.errors import CorruptBatchError, CorruptDataError, StorageError, TidelogError
from tidelog.formats.names import file_name
from tidelog.reader.log import Log
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partition.watermarks import FetchIsolation

SIZE = len(batch())
SUFFIXES = (".log", ".index", ".timeindex")


def opened(tmp_path: Path, *, clean: bool, start: int = 0, **properties: str) -> PartitionLog:
    sizes: dict[str, int | str | bool] = {"segment_bytes": 10 * SIZE, "index_interval_bytes": 2 * SIZE}
    return open_log(tmp_path, clean=clean, log_start_offset=start, **sizes, **properties)


def renamed(folder: Path, base: int, to: str) -> None:
    for suffix in SUFFIXES:
        (folder / file_name(base, suffix)).rename(folder / f"{to}{suffix}")


def first_at(log: PartitionLog, offset: int) -> int:
    """The offset of the first record that a fetch from `offset` gives."""
    data = log.read(offset, 1, FetchIsolation.LOG_END).data
    return int.from_bytes(data[:8], "big", signed=True)


def bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", ["20", "+20", "0020", "-20", "notes", f"{20:021d}", f"{20:020d}.bak", "９" * 20])
def test_a_name_that_is_not_kafkas(tmp_path: Path, name: str, clean: bool) -> None:
    folder = closed(tmp_path)
    renamed(folder, 20, name)
    before = bytes_of(folder)
    with pytest.raises(CorruptDataError, match="the file name is not that of a segment"):
        opened(tmp_path, clean=clean)
    assert bytes_of(folder) == before


@pytest.mark.parametrize("clean", [True, False])
def test_a_link_that_leads_nowhere(tmp_path: Path, clean: bool) -> None:
    folder = closed(tmp_path)
    last = folder / file_name(20, ".log")
    shutil.move(last, tmp_path / "elsewhere.log")
    last.symlink_to(tmp_path / "not-mounted.log")
    with pytest.raises(StorageError, match="the target of a segment's symbolic link does not exist"):
        opened(tmp_path, clean=clean)


def test_a_lower_name(tmp_path: Path) -> None:
    """Offsets between the name and the first batch lie in the segment before: that is found out by who asks for them."""
    folder = closed(tmp_path, 40)
    renamed(folder, 20, f"{15:020d}")
    log = opened(tmp_path, clean=True)
    assert [first_at(log, offset) for offset in range(15)] == list(range(15))
    for offset in (15, 19):
        with pytest.raises(CorruptBatchError, match="a segment's name does not fit"):
            first_at(log, offset)


def test_a_lower_name_after_a_crash(tmp_path: Path) -> None:
    folder = closed(tmp_path)
    renamed(folder, 20, f"{15:020d}")
    before = bytes_of(folder)
    with pytest.raises(CorruptBatchError, match="reaches offset 19, expected < 15"):
        opened(tmp_path, clean=False)
    assert bytes_of(folder) == before


@pytest.mark.parametrize("properties", [{}, {"cleanup_policy": "compact"}])
@pytest.mark.parametrize("base", [5, 19, 25])
def test_an_empty_segment_among_the_offsets_of_another(tmp_path: Path, base: int, properties: dict[str, str]) -> None:
    folder = closed(tmp_path)
    (folder / file_name(base, ".log")).touch()
    with pytest.raises(CorruptBatchError, match="an empty segment's name does not fit"):
        opened(tmp_path, clean=True, **properties)
    log = opened(tmp_path, clean=False, **properties)
    assert offsets(log) == list(range(30)), "after a crash it goes, with a warning"
    assert not (folder / file_name(base, ".log")).exists()


def test_the_last_segments_name(tmp_path: Path) -> None:
    """The log's end is what it says: it is looked at before anything is given an offset."""
    folder = closed(tmp_path)
    renamed(folder, 0, f"{31:020d}")
    with pytest.raises(CorruptBatchError, match="does not fit its first batch: found offset 0, expected >= 31"):
        opened(tmp_path, clean=True)


def test_one_that_a_log_start_lies_in(tmp_path: Path) -> None:
    folder = closed(tmp_path)
    renamed(folder, 20, f"{15:020d}")
    with pytest.raises(CorruptBatchError, match="a segment's name does not fit"):
        opened(tmp_path, clean=True, start=17)


@pytest.mark.parametrize("has_next", [True, False])
def test_an_offset_in_which_a_bit_has_flipped_is_still_cut(tmp_path: Path, has_next: bool) -> None:
    """Not the name is wrong then: the batch fits neither what is before it nor what comes after."""
    folder = closed(tmp_path, 20)
    if not has_next:
        for suffix in SUFFIXES:
            (folder / file_name(10, suffix)).unlink()
        (folder / file_name(10, ".log")).touch()
    path = folder / file_name(0, ".log")
    content = bytearray(path.read_bytes())
    content[9 * SIZE + 6] ^= 1
    path.write_bytes(content)
    assert offsets(opened(tmp_path, clean=False)) == list(range(9))


def test_an_empty_active_segment_is_as_it_should_be(tmp_path: Path) -> None:
    folder = closed(tmp_path)
    (folder / file_name(30, ".log")).touch()
    for clean in (True, False):
        log = opened(tmp_path, clean=clean)
        assert (offsets(log), log.log_end_offset) == (list(range(30)), 30)
        log.close()


@examples(150)
@given(
    empties=st.sets(st.integers(0, 31), max_size=2),
    renames=st.dictionaries(st.sampled_from([0, 10, 20]), st.integers(0, 40), max_size=1),
    clean=st.booleans(),
    compacted=st.booleans(),
    start=st.sampled_from([0, 0, 7, 15, 22]),
)
def test_each_record_or_an_error(
    tmp_path_factory: pytest.TempPathFactory,
    empties: set[int],
    renames: dict[int, int],
    clean: bool,
    compacted: bool,
    start: int,
) -> None:
    """From whatever offset it is read: the next record is the one that was there, and no sound batch is removed."""
    tmp_path = tmp_path_factory.mktemp("names")
    folder = closed(tmp_path)
    for base, to in renames.items():
        if not (folder / file_name(to, ".log")).exists():
            renamed(folder, base, f"{to:020d}")
    for base in empties:
        (folder / file_name(base, ".log")).touch()
    before = bytes_of(folder)
    try:
        log = opened(tmp_path, clean=clean, start=start, **({"cleanup_policy": "compact"} if compacted else {}))
    except TidelogError:
        assert bytes_of(folder) == before
        return
    assert bytes_of(folder) == before
    if log.log_end_offset < 30:
        # A name below those of earlier segments. Only the first and the last are looked at before a start, the rest soon after.
        with Log.open(folder) as there, pytest.raises(CorruptBatchError):
            there.check_names()
    for offset in range(log.log_start_offset, min(30, log.log_end_offset)):
        try:
            found = first_at(log, offset)
        except TidelogError:
            continue
        assert found == offset
