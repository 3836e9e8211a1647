"""Reading one object: the right bytes in any order of reads, in few requests, within bounds, and from the cache of the disk."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.errors import SegmentChangedError, StorageError
from tidelog.formats import names
from tidelog.formats.checkpoints import read_offset_checkpoint
from tidelog.objects import read_ahead
from tidelog.objects.address import Place
from tidelog.objects.disk_cache import DiskCache
from tidelog.objects.listing import Listing, ObjectFacts
from tidelog.objects.object_path import ObjectPath, ObjectSource, object_folder

DATA = bytes(i * 31 % 251 for i in range(3_000_000))


class Memory:
    """A bucket in memory, which notes its requests."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.reads: list[tuple[str, int, int]] = []
        self.listings = 0

    def list(self, prefix: str) -> Iterable[tuple[str, ObjectFacts]]:
        self.listings += 1
        for key, data in sorted(self.objects.items()):
            if not prefix or key.startswith(f"{prefix}/"):
                yield key, ObjectFacts(len(data), 1, str(hash(data)))

    def read(self, key: str, facts: ObjectFacts, start: int, end: int) -> memoryview:
        self.reads.append((key, start, end))
        if key not in self.objects or facts.tag != str(hash(self.objects[key])):
            raise SegmentChangedError("an object was overwritten while it was being read", path=key)
        assert 0 <= start < end <= facts.size_bytes
        return memoryview(self.objects[key])[start:end]


def bucket(store: Memory, cache: str = "0") -> ObjectPath:
    source = ObjectSource(Place("s3", "s3", "b", ""), {"cache_bytes": cache}, store)
    source.root = ""
    return ObjectPath(source, "")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(DATA) + 10), st.integers(0, 400_000)), max_size=30),
    st.lists(st.integers(0, len(DATA)), max_size=6),
)
def test_any_reads_give_the_objects_bytes(reads: list[tuple[int, int]], ends: list[int]) -> None:
    path = bucket(Memory({"p-0/0.log": DATA})) / "p-0" / "0.log"
    handle = path.open_handle()
    ends.sort()
    handle.will_read(list(zip(ends[::2], ends[1::2], strict=False)))
    for position, length in reads:
        assert handle.read(position, length) == DATA[position : position + length]
    position = 0
    while position < len(DATA):  # In order, as a scan.
        position += len(handle.read(position, 70_000))
    handle.close()


def test_small_reads_in_order_become_few_requests() -> None:
    store = Memory({"p-0/0.log": DATA})
    handle = (bucket(store) / "p-0" / "0.log").open_handle()
    for position in range(0, len(DATA), 4096):
        handle.read(position, 61)
    assert len(store.reads) <= 12
    handle.close()


def test_what_was_told_is_read_once_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "PIECE_BYTES", 100_000)
    store = Memory({"p-0/0.log": DATA})
    handle = (bucket(store) / "p-0" / "0.log").open_handle()
    handle.will_read([(1_000_000, 1_500_000), (1_510_000, 2_000_000), (2_500_000, 2_600_000)])
    handle.will_read([(1_000_000, 1_500_000), (1_510_000, 2_000_000), (2_500_000, 2_600_000)])
    for start, end in ((1_000_000, 1_500_000), (1_510_000, 2_000_000), (2_500_000, 2_600_000)):
        assert handle.read(start, end - start) == DATA[start:end]
    assert (
        sum(end - start for _, start, end in store.reads) == 1_100_000
    )  # The gap of 10,000 bytes is read, the larger one is not.
    assert len(store.reads) == 11
    handle.close()


def test_the_window_goes_on_into_the_next_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files that were announced share one window: its rest is the second one's, and no more is fetched than has room."""
    monkeypatch.setattr(read_ahead, "PIECE_BYTES", 1_000_000)
    monkeypatch.setattr(read_ahead, "IN_FLIGHT", 4)
    store = Memory({f"p-0/{number}.log": DATA for number in range(3)})
    folder = bucket(store) / "p-0"
    first, second, third = ((folder / f"{number}.log").open_handle() for number in range(3))
    window = folder.source.window
    for handle in (first, second, third):
        handle.will_read([(0, len(DATA))])

    def begun() -> list[int]:
        return [one.pieces for one in window._readers]

    assert begun() == [3, 1, 0]
    assert third.read(0, 100) == DATA[:100]  # Whoever reads gets at least one.
    assert begun() == [3, 1, 1]
    assert first.read(2_000_000, 100) == DATA[2_000_000:2_000_100]
    assert begun() == [1, 2, 1]
    first.close()
    assert begun() == [3, 1]
    for handle in (second, third):
        assert handle.read(0, len(DATA)) == DATA
        handle.close()
    assert len(store.reads) == 9
    assert not window._readers


def test_the_cache_of_the_disk_answers_and_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_CACHE_DIR", str(tmp_path))
    store = Memory({"p-0/0.index": DATA[:100_000]})

    def read() -> bytes:
        return (bucket(store, "1000000") / "p-0" / "0.index").open_handle().read(50_000, 8)

    assert read() == read() == DATA[50_000:50_008]
    assert store.reads == [("p-0/0.index", 0, 100_000)]
    (entry,) = (path for path in tmp_path.rglob("*") if path.is_file())
    entry.write_bytes(entry.read_bytes()[:-1] + b"?")  # Damaged: read again.
    assert read() == DATA[50_000:50_008]
    assert len(store.reads) == 2
    store.objects["p-0/0.index"] = DATA[1:100_001]  # Another object is never answered from the old one.
    assert read() == DATA[50_001:50_009]
    cache = DiskCache(tmp_path / "bounded", 100_000)
    for number in range(600):
        cache.put(str(number), bytes(1000))
    cache._sweep()
    assert sum(path.stat().st_size for path in (tmp_path / "bounded").rglob("*") if path.is_file()) <= 100_000


def test_an_object_that_changed_or_vanished_is_an_error() -> None:
    store = Memory({"p-0/0.log": DATA})
    handle = (bucket(store) / "p-0" / "0.log").open_handle()
    handle.read(0, 10)
    store.objects["p-0/0.log"] = DATA[:-1] + b"?"
    with pytest.raises(SegmentChangedError, match="overwritten"):
        handle.read(2_000_000, 10)


def test_paths_answer_from_one_listing() -> None:
    store = Memory({"t-0/00000000000000000000.log": b"x", "t-0/partition.metadata": b"yy", "meta.properties": b""})
    root = bucket(store)
    assert sorted(path.name for path in root.iterdir()) == ["meta.properties", "t-0"]
    folder = root / "t-0"
    assert folder.is_dir() and not folder.is_file() and folder.exists()
    assert sorted(path.name for path in folder.iterdir()) == ["00000000000000000000.log", "partition.metadata"]
    log = folder / "00000000000000000000.log"
    assert (log.stem, log.suffix, log.with_suffix(".index").name) == ("0" * 20, ".log", "0" * 20 + ".index")
    assert log.stat().st_size == 1 and not (folder / "other").exists()
    with pytest.raises(FileNotFoundError):
        (folder / "other").stat()
    with pytest.raises(FileNotFoundError):
        (root / "u-0").iterdir()
    with pytest.raises(NotADirectoryError):
        log.iterdir()
    with pytest.raises(TypeError, match="not a local file"):
        Path(log)
    assert store.listings == 1 and not store.reads


class _Many:
    def list(self, prefix: str) -> Iterable[tuple[str, ObjectFacts]]:
        for partition in range(250):
            for number in range(400):
                yield (
                    f"backup/topic-{partition}/{number:020d}.log",
                    ObjectFacts(1 << 30, number, f"{partition:016x}{number:016x}"),
                )


def test_a_hundred_thousand_objects_take_little_memory() -> None:
    tracemalloc.start()
    try:
        listing = Listing(_Many(), "backup")
        assert len(listing.names("backup")) == 250
        assert len(listing.objects("backup/topic-7")) == 400
        assert tracemalloc.get_traced_memory()[1] < 25_000_000
    finally:
        tracemalloc.stop()


def test_an_error_of_a_request_is_told_by_what_reads_files_of_every_kind() -> None:
    class Failing(Memory):
        def read(self, key: str, facts: ObjectFacts, start: int, end: int) -> memoryview:
            raise StorageError("object storage failed: SlowDown", path=f"s3://bucket/{key}")

    folder = object_folder("s3://bucket", Failing({names.HIGH_WATERMARK_CHECKPOINT: b"0\n0\n"}))
    with pytest.raises(StorageError, match="cannot read a checkpoint: object storage failed: SlowDown"):
        read_offset_checkpoint(folder / names.HIGH_WATERMARK_CHECKPOINT)
