"""What an interrupted deletion, compaction or split left in a folder, before a log is loaded from it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.reader import build
from tests.reader.build import LogBuilder
from tests.storage.crash_states import CrashStates
from tidelog.errors import InvalidArgumentError, StorageError
from tidelog.formats.names import file_name, offset_from_file_name
from tidelog.reader.log import Log
from tidelog.storage.loading import temporary_files

SUFFIXES = (".log", ".index", ".timeindex")
KEPT = [0, 5, 10, 15, 19]


def no_swap(_: int) -> int:
    raise AssertionError("no .log.swap to look into")


def three_segments(tmp_path: Path) -> LogBuilder:
    """Offsets 0..29, ten a segment."""
    builder = LogBuilder(tmp_path / "t-0")
    for base in (0, 10, 20):
        builder.append(*(build.batch(i, [10 * i]) for i in range(base, base + 10)))
        builder.roll() if base < 20 else builder.close()
    return builder


def compacted(builder: LogBuilder, ending: str, suffixes: tuple[str, ...] = SUFFIXES) -> None:
    """Put what compaction made of the first two segments beside them."""
    other = LogBuilder(builder.directory.parent / "compacted-0")
    other.append(*(build.batch(i, [10 * i]) for i in KEPT)).close()
    for suffix in suffixes:
        shutil.copy(other.file(0, suffix), f"{builder.file(0, suffix)}{ending}")
    shutil.rmtree(other.directory)


def split(builder: LogBuilder, endings: dict[int, str]) -> None:
    """Put what a split made of the first segment beside it: bases 0, 4 and 8."""
    other = LogBuilder(builder.directory.parent / "split-0")
    for base, end in ((0, 4), (4, 8), (8, 10)):
        other.append(*(build.batch(i, [10 * i]) for i in range(base, end)))
        other.roll() if end < 10 else other.close()
    for base, ending in endings.items():
        for suffix in SUFFIXES:
            shutil.copy(other.file(base, suffix), f"{builder.file(base, suffix)}{ending}")
    shutil.rmtree(other.directory)


def swap_end(directory: Path) -> Callable[[int], int]:
    """Where a ``.log.swap`` ends, told by the reading side."""

    def next_offset(base: int) -> int:
        copy = directory.parent / f"swap-of-{base}-0"
        copy.mkdir(exist_ok=True)
        shutil.copy(directory / file_name(base, ".log.swap"), copy / file_name(base, ".log"))
        try:
            with Log.open(copy) as log:
                return log.log_end_offset
        finally:
            shutil.rmtree(copy)

    return next_offset


def offsets(directory: Path) -> list[int]:
    with Log.open(directory) as log:
        return [header.base_offset for header in log.headers(check_crc=True)]


def bases(directory: Path) -> list[int]:
    return sorted(offset_from_file_name(path.name) for path in directory.glob("*.log"))


def clear(builder: LogBuilder) -> None:
    found = temporary_files.clear_temporary_files(builder.directory, swap_end(builder.directory))
    assert found == {path.name for path in builder.directory.iterdir()}
    assert not any(name.endswith((".deleted", ".cleaned", ".swap")) for name in found)
    assert temporary_files.remove_orphan_indexes(builder.directory, found) == found


def test_nothing_left_over(tmp_path: Path) -> None:
    builder = three_segments(tmp_path)
    (builder.directory / "folder").mkdir()
    before = {path.name for path in builder.directory.iterdir() if path.is_file()}
    assert temporary_files.clear_temporary_files(builder.directory, no_swap) == before


def test_open_deletes_obsolete_files(tmp_path: Path) -> None:
    """LogLoaderTest.testOpenDeletesObsoleteFiles: ``.deleted`` files vanish, but those of the metadata log stay."""
    builder = three_segments(tmp_path)
    for suffix in SUFFIXES:
        builder.file(0, suffix).rename(f"{builder.file(0, suffix)}.deleted")
    raft = builder.directory / "00000000000000000005-0000000002.checkpoint.deleted"
    raft.touch()
    temporary_files.clear_temporary_files(builder.directory, no_swap)
    assert [path.name for path in builder.directory.glob("*.deleted")] == [raft.name]
    assert offsets(builder.directory) == list(range(10, 30))


def test_bogus_index_segments_are_removed(tmp_path: Path) -> None:
    """LogLoaderTest.testBogusIndexSegmentsAreRemoved: index files without their log; other files are left alone"""
    builder = three_segments(tmp_path)
    orphans = [builder.file(5, suffix) for suffix in (".index", ".timeindex", ".txnindex", ".timemap")]
    strangers = [builder.directory / name for name in ("notes.index", "leader-epoch-checkpoint", "README")]
    for path in (*orphans, *strangers):
        path.touch()
    before = temporary_files.clear_temporary_files(builder.directory, no_swap)
    assert before - temporary_files.remove_orphan_indexes(builder.directory, before) == {path.name for path in orphans}
    assert all(path.exists() for path in strangers)
    assert bases(builder.directory) == [0, 10, 20]
    assert builder.file(10, ".index").exists()


def test_an_index_that_was_being_built(tmp_path: Path) -> None:
    builder = three_segments(tmp_path)
    for suffix in (".timeindex.tmp", ".timemap.tmp"):
        builder.file(0, suffix).touch()
    kept = builder.directory / "leader-epoch-checkpoint.tmp"
    kept.touch()
    temporary_files.clear_temporary_files(builder.directory, no_swap)
    assert list(builder.directory.glob("*.tmp")) == [kept]


class TestRecoveryAfterCrash:
    """LogCleanerTest.testRecoveryAfterCrash, by its phases."""

    def test_cleaned(self, tmp_path: Path) -> None:
        builder = three_segments(tmp_path)
        compacted(builder, ".cleaned")
        clear(builder)
        assert offsets(builder.directory) == list(range(30))

    def test_log_is_swap_and_the_rest_cleaned(self, tmp_path: Path) -> None:
        builder = three_segments(tmp_path)
        compacted(builder, ".swap", (".log",))
        compacted(builder, ".cleaned", (".index", ".timeindex"))
        clear(builder)
        assert offsets(builder.directory) == list(range(30))

    @pytest.mark.parametrize("old", ["in place", "deleted", "one deleted", "gone", "log deleted"])
    def test_all_swap(self, tmp_path: Path, old: str) -> None:
        builder = three_segments(tmp_path)
        compacted(builder, ".swap")
        gone = {"in place": (), "one deleted": (0,)}.get(old, (0, 10))
        for base in gone:
            for suffix in SUFFIXES if old != "log deleted" else (".log",):
                path = builder.file(base, suffix)
                path.unlink() if old == "gone" else path.rename(f"{path}.deleted")
        clear(builder)
        assert bases(builder.directory) == [0, 20]
        assert offsets(builder.directory) == [*KEPT, *range(20, 30)]
        assert not builder.file(10, ".snapshot").exists()

    def test_only_an_index_is_a_swap(self, tmp_path: Path) -> None:
        builder = three_segments(tmp_path)
        for suffix in SUFFIXES:
            builder.file(10, suffix).unlink()
        compacted(builder, "")
        content = builder.file(0, ".timeindex").read_bytes()
        builder.file(0, ".timeindex").rename(f"{builder.file(0, '.timeindex')}.swap")
        clear(builder)
        assert offsets(builder.directory) == [*KEPT, *range(20, 30)]
        assert builder.file(0, ".timeindex").read_bytes() == content

    def test_an_empty_segment(self, tmp_path: Path) -> None:
        """Compaction that kept nothing leaves an empty segment, which stands for the one of its own base."""
        builder = three_segments(tmp_path)
        builder.file(10, ".txnindex").touch()
        for suffix in SUFFIXES:
            Path(f"{builder.file(10, suffix)}.swap").touch()
        clear(builder)
        assert offsets(builder.directory) == [*range(10), *range(20, 30)]
        assert builder.file(10, ".log").stat().st_size == 0
        assert not builder.file(10, ".txnindex").exists(), "it told of batches that are gone"


class TestRecoveryAfterCrashDuringSplit:
    """LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase1 to 5, as far as files go."""

    @pytest.mark.parametrize(
        ("endings", "expected"),
        [
            pytest.param({0: ".cleaned", 4: ".cleaned", 8: ".cleaned"}, [0, 10, 20], id="phase1"),
            pytest.param({0: ".cleaned", 4: ".cleaned", 8: ".swap"}, [0, 10, 20], id="phase2"),
            pytest.param({0: ".cleaned", 4: ".swap", 8: ".swap"}, [0, 10, 20], id="phase2-last"),
            pytest.param({0: ".swap", 4: ".swap", 8: ".swap"}, [0, 4, 8, 10, 20], id="phase3"),
        ],
    )
    def test_before_the_old_one_goes(self, tmp_path: Path, endings: dict[int, str], expected: list[int]) -> None:
        builder = three_segments(tmp_path)
        split(builder, endings)
        clear(builder)
        assert bases(builder.directory) == expected
        assert offsets(builder.directory) == list(range(30))

    @pytest.mark.parametrize(
        "endings",
        [
            pytest.param({0: ".swap", 4: ".swap", 8: ".swap"}, id="phase4"),
            pytest.param({0: "", 4: ".swap", 8: ".swap"}, id="phase5-first"),
            pytest.param({0: "", 4: "", 8: ".swap"}, id="phase5"),
        ],
    )
    def test_after_the_old_one_went(self, tmp_path: Path, endings: dict[int, str]) -> None:
        builder = three_segments(tmp_path)
        for suffix in SUFFIXES:
            builder.file(0, suffix).rename(f"{builder.file(0, suffix)}.deleted")
        split(builder, endings)
        clear(builder)
        assert bases(builder.directory) == [0, 4, 8, 10, 20]
        assert offsets(builder.directory) == list(range(30))


class TestInterrupted:
    """Clearing up is interrupted as well: whatever the moment, the next start ends where the first would have."""

    @pytest.mark.parametrize("case", ["cleaned", "half cleaned", "swap", "swap, one deleted", "split", "half split"])
    def test_the_next_start_ends_at_the_same(self, tmp_path: Path, case: str) -> None:
        builder = three_segments(tmp_path)
        builder.file(0, ".txnindex").write_bytes(bytes(34))
        if case == "half cleaned":
            split(builder, {0: ".cleaned", 4: ".swap", 8: ".swap"})
        elif case == "split":
            split(builder, {0: ".swap", 4: ".swap", 8: ".swap"})
        elif case == "half split":
            for suffix in (*SUFFIXES, ".txnindex"):
                builder.file(0, suffix).rename(f"{builder.file(0, suffix)}.deleted")
            split(builder, {0: "", 4: ".swap", 8: ".swap"})
        else:
            compacted(builder, f".{case.split(',')[0]}")
            Path(f"{builder.file(0, '.txnindex')}.{case.split(',')[0]}").write_bytes(bytes(68))
        if case == "swap, one deleted":
            builder.file(0, ".log").rename(f"{builder.file(0, '.log')}.deleted")
        with CrashStates(builder.directory, tmp_path / "states") as states:
            clear(builder)
        expected = {path.name: path.read_bytes() for path in builder.directory.iterdir()}
        assert len(states.folders) > 3
        for folder in states.folders:
            temporary_files.clear_temporary_files(folder, swap_end(folder))
            assert {path.name: path.read_bytes() for path in folder.iterdir()} == expected


@pytest.mark.parametrize("name", ["a.log.swap", ".cleaned", "1x.cleaned"])
def test_a_name_without_an_offset(tmp_path: Path, name: str) -> None:
    builder = three_segments(tmp_path)
    (builder.directory / name).touch()
    with pytest.raises(InvalidArgumentError, match="no offset"):
        temporary_files.clear_temporary_files(builder.directory, no_swap)


def test_a_log_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = three_segments(tmp_path)
    monkeypatch.setattr("os.access", lambda path, _: not str(path).endswith("10.log"))
    with pytest.raises(StorageError, match="not allowed to read the log"):
        temporary_files.clear_temporary_files(builder.directory, no_swap)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot list"):
        temporary_files.clear_temporary_files(tmp_path / "absent-0", no_swap)
