"""A bucket that changes while `tidelog.scan` reads it, at each of its requests in turn: all rows of one state, or an error that
names an object that changed. Never fewer rows.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import tidelog
from tests.examples import IS_SOAK
from tests.objects.test_object_file import Memory
from tests.reader.build import LogBuilder, batch
from tidelog.errors import TidelogError
from tidelog.objects import stores
from tidelog.objects.address import with_options
from tidelog.objects.listing import ObjectFacts

START_MS = 1_700_000_000_000
RECORDS = 1_500
BOUNDS: list[tuple[int | None, int | None]] = [(None, None), (START_MS + RECORDS // 2, START_MS + RECORDS - 1)]


STEP = 1 if IS_SOAK else 3
"""Of the requests of a scan, `make test` has each third: which ones depends on the object, so that all of them are among them."""


class Changing(Memory):
    """A bucket in which one object becomes `content` (None: is deleted) after so many requests."""

    def __init__(self, objects: dict[str, bytes], key: str, content: bytes | None, after: int) -> None:
        super().__init__(dict(objects))
        self._key, self._content, self._after = key, content, after

    def list(self, prefix: str) -> Iterable[tuple[str, ObjectFacts]]:
        listed = list(super().list(prefix))
        self._count()
        return listed

    def read(self, key: str, facts: ObjectFacts, start: int, end: int) -> memoryview:
        self._count()
        return super().read(key, facts, start, end)

    @property
    def has_changed(self) -> bool:
        return self._after < 0

    def _count(self) -> None:
        self._after -= 1
        if self._after == -1:
            if self._content is None:
                del self.objects[self._key]
            else:
                self.objects[self._key] = self._content


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Three segments of one partition. No checkpoint and no snapshot tells what is missing."""
    folder = tmp_path_factory.mktemp("changing")
    builder = LogBuilder(folder / "events-0", segment_bytes=150_000, interval_bytes=4096)
    for offset in range(0, RECORDS, 10):
        builder.append(batch(offset, range(START_MS + offset, START_MS + offset + 10), value=b"x" * 190))
    builder.close()
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".snapshot"]
    return {f"copy/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in files}


def rows(store: Memory, bounds: tuple[int | None, int | None], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    monkeypatch.setattr(stores, "open_store", lambda place, options: store)
    address = with_options("s3://bucket/copy", {"cache_bytes": "0"})
    found: list[int] = tidelog.scan(address, "events", bounds[0], bounds[1], columns=["offset"]).read_all()["offset"].to_pylist()
    return found


@pytest.mark.parametrize("bounds", BOUNDS, ids=["all", "range"])
@pytest.mark.parametrize("kind", [".log", ".index", ".timeindex"])
@pytest.mark.parametrize("change", ["replaced", "cut", "emptied", "longer", "deleted"])
def test_no_change_costs_rows_in_silence(
    objects: dict[str, bytes], bounds: tuple[int | None, int | None], kind: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = rows(Memory(objects), bounds, monkeypatch)
    assert every == (list(range(RECORDS)) if bounds[0] is None else list(range(RECORDS // 2, RECORDS - 1)))
    keys = [key for key in sorted(objects) if key.endswith(kind)]
    assert len(keys) == 3
    for number, key in enumerate(keys):
        data = objects[key]
        changed = {"replaced": data[:-1] + b"?", "cut": data[: len(data) // 2], "emptied": b"", "longer": data + bytes(99)}
        for after in range(number % STEP, 200, STEP):
            store = Changing(objects, key, changed.get(change), after)
            try:
                assert rows(store, bounds, monkeypatch) == every, (key, after)
            except TidelogError as error:
                assert key.rpartition("/")[2] in str(error)
            if not store.has_changed:
                break
        else:
            pytest.fail("a scan of so small a log takes fewer requests")


def test_a_log_that_grew_while_it_was_planned_is_read_again(objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a copy is brought up to date meanwhile."""
    key = max(key for key in objects if key.endswith(".log"))
    longer = objects[key] + batch(RECORDS, [START_MS])
    assert rows(Changing(objects, key, longer, 1), (None, None), monkeypatch) == list(range(RECORDS + 1))


def test_a_segment_in_the_middle_that_grew_is_opened_again(objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder has the same names, and the same last segment, as before."""
    key = min(key for key in objects if key.endswith(".log"))
    before = objects | {key: objects[key][: len(objects[key]) // 2]}
    assert rows(Changing(before, key, objects[key], 1), (None, None), monkeypatch) == list(range(RECORDS))
