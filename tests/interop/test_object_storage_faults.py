"""Object storage that fails costs time, or ends in one error that names the object: never in fewer rows.

And it is asked little: requests and bytes are counted at the server.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import tidelog
from tests.cli.conftest import run_ok
from tests.interop.gate import first_of
from tests.reader.build import LogBuilder, batch
from tests.s3.front import Front
from tests.s3.requests import Answer, Body, Fault, Request, error, half_body, listing, reset, served, short_answer, without_key
from tests.s3.server import S3Server
from tidelog.errors import TidelogError
from tidelog.objects import object_store
from tidelog.objects.address import with_options
from tidelog.objects.opening import folder_at
from tidelog.reader.tiered.tiered_log_dir import open_log_dir
from tidelog.reader.time_search import find_offset

START_MS = 1_700_000_000_000
RECORDS = 6_000
LAST = f"{RECORDS - 10:020}"
"""The last batch's, and so the last segment's, first offset is about this; see `last_segment`."""


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with one partition of several segments of 300 kB, a record a millisecond."""
    folder = tmp_path_factory.mktemp("local")
    builder = LogBuilder(folder / "events-0", segment_bytes=300_000, interval_bytes=4096)
    for offset in range(0, RECORDS, 10):
        builder.append(batch(offset, range(START_MS + offset, START_MS + offset + 10), value=b"x" * 190))
    builder.close()
    return folder


@pytest.fixture(scope="module")
def uploaded(s3: S3Server, local: Path) -> str:
    return with_options(s3.upload(local, "faults-of-reads"), s3.options | {"cache_bytes": "0"})


@pytest.fixture
def front(s3: S3Server) -> Iterator[Front]:
    with s3.front.measured() as front:
        yield front


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up soon."""
    monkeypatch.setattr(object_store, "RETRY_S", 1)


def rows(address: str, *bounds: int) -> list[int]:
    found: list[int] = tidelog.scan(address, "events", *bounds, columns=["offset"]).read_all()["offset"].to_pylist()
    return found


PASSING: dict[str, Callable[[Front], None]] = {
    "500": lambda front: front.fail(error(500, "InternalError"), times=2),
    "503": lambda front: front.fail(error(503, "SlowDown"), times=3),
    "503 of the listing": lambda front: front.fail(error(503, "SlowDown"), "LIST", times=2),
    "resets": lambda front: front.fail(reset, times=2),
    "a reset of the listing": lambda front: front.fail(reset, "LIST", times=1),
    "half a body": lambda front: front.fail(half_body, times=2),
    "half a listing": lambda front: front.fail(half_body, "LIST", times=1),
    "half a log": lambda front: front.fail(half_body, key=".log", times=2),
    "a short answer": lambda front: front.fail(short_answer, times=2),
}


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_that_passes_costs_time(uploaded: str, front: Front, fault: str) -> None:
    PASSING[fault](front)
    assert rows(uploaded) == list(range(RECORDS))
    assert all(rule.left == 0 for rule in front._rules)


def without_end(request: Request) -> Answer | Body | None:
    """Answer each listing with its first page, as a server that does not know continuation tokens."""
    request.query.pop("continuation-token", None)
    return MANY(request)


MANY = listing((f"faults-of-reads/events-0/{number:020}.log", 7) for number in range(1001))

LASTING: dict[str, tuple[Fault, str, str]] = {
    "500": (error(500, "InternalError"), "GET", "InternalError"),
    "503": (error(503, "SlowDown"), "GET", "SlowDown"),
    "reset": (reset, "GET", "s3://"),
    "half a body": (half_body, "GET", "s3://"),
    "short": (short_answer, "GET", "length"),
    "expired": (error(400, "ExpiredToken"), "GET", "denied access: ExpiredToken"),
    "expired listing": (error(400, "ExpiredToken"), "LIST", "denied access: ExpiredToken"),
    "forbidden": (error(403, "AccessDenied"), "GET", "denied access: AccessDenied"),
    "gone": (error(404, "NoSuchKey"), "GET", "has been deleted"),
    "no bucket": (error(404, "NoSuchBucket"), "LIST", "NoSuchBucket"),
    "a listing without an end": (without_end, "LIST", "the listing repeats itself"),
    "500 of the listing": (error(500, "InternalError"), "LIST", "InternalError"),
}


@pytest.mark.parametrize("fault", LASTING)
@pytest.mark.usefixtures("hasty")
def test_a_fault_that_lasts_is_one_error(uploaded: str, s3: S3Server, front: Front, fault: str) -> None:
    answer, kind, said = LASTING[fault]
    front.fail(answer, kind, key="" if kind == "LIST" else "events-0/", after=0 if kind == "LIST" else 3)
    address = with_options(uploaded, {**s3.options, "cache_bytes": "0", "region": f"of-{fault.replace(' ', '-')}"})
    with pytest.raises(TidelogError, match=said) as caught:
        rows(address)
    text = str(caught.value)
    assert "s3://backup" in text
    assert "\n" not in text
    assert len(text) < 400


def last_segment(local: Path) -> Path:
    return max((local / "events-0").glob("*.log"))


def told(address: str) -> tuple[list[int], bool]:
    """Return the offsets that a scan has, and whether it reports that others are missing."""
    report = tidelog.ScanReport()
    found = tidelog.scan(address, "events", columns=["offset"], report=report).read_all()["offset"].to_pylist()
    return found, bool(report.missing)


def test_a_listing_that_misses_the_newest_object(uploaded: str, local: Path, front: Front) -> None:
    """The producer snapshot at the log's end is listed: it tells what is missing."""
    front.fail(without_key(f"faults-of-reads/events-0/{last_segment(local).name}"), "LIST")
    found, is_told = told(uploaded)
    assert len(found) < RECORDS
    assert is_told


def test_a_listing_goes_on_where_it_broke_off(s3: S3Server, front: Front) -> None:
    list_them = listing((f"pages/events-0/{number:020}.log", 1000) for number in range(2500))

    def breaks(request: Request) -> Answer | Body | None:
        answer = list_them(request)
        assert isinstance(answer, Answer)
        return replace(answer, is_cut=True)

    front.fail(breaks, "LIST", after=1, times=1)
    front.fail(list_them, "LIST")
    folder = folder_at(with_options(s3.url("pages/events-0"), s3.options))
    assert len(list(folder.iterdir())) == 2500
    assert front.count("LIST") == 4


@pytest.mark.parametrize("what", ["replaced", "deleted", "truncated", "longer"])
def test_an_object_that_changes_while_it_is_read(s3: S3Server, local: Path, front: Front, what: str) -> None:
    """An error names it, unless all its records are read: fewer are never the answer (`tests/objects/test_changing.py`)."""
    address = with_options(s3.upload(local, f"changing-{what}"), s3.options | {"cache_bytes": "0"})
    name = last_segment(local).name
    key, data = f"changing-{what}/events-0/{name}", last_segment(local).read_bytes()

    def change(_: Request) -> Body | None:
        if what == "deleted":
            s3.delete(key)
        else:
            s3.put(key, {"replaced": data[:-1] + b"z", "truncated": data[: len(data) // 2], "longer": data + data[:99]}[what])
        return None

    front.fail(change, key="events-0/0", after=2, times=1)
    try:
        found = rows(address)
    except TidelogError as error:
        assert name in str(error)
    else:
        assert found == list(range(RECORDS))
        assert what == "longer"


# --- Requests and bytes


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition of 200 small segments."""
    folder = tmp_path_factory.mktemp("many")
    builder = LogBuilder(folder / "events-0", segment_bytes=20_000, interval_bytes=4096)
    for offset in range(0, 20_000, 100):
        builder.append(batch(offset, range(START_MS + offset, START_MS + offset + 100), value=b"x" * 180))
    builder.close()
    return folder


MAPPED = 200_000


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition of 40 MB in ten segments, with time maps."""
    folder = tmp_path_factory.mktemp("mapped")
    builder = LogBuilder(folder / "events-0", segment_bytes=4_000_000, interval_bytes=4096)
    for offset in range(0, MAPPED, 50):
        builder.append(batch(offset, range(START_MS + offset, START_MS + offset + 50), value=b"x" * 190))
    builder.close()
    run_ok("index", "rebuild", folder, "--time-map")
    return folder


@pytest.mark.parametrize(
    "time_ms", first_of(START_MS + 11_234, START_MS, START_MS + 19_999, why="the same search, at the ends of the log")
)
def test_finding_takes_few_requests(s3: S3Server, many: Path, front: Front, tmp_path: Path, time_ms: int) -> None:
    for kind in ("LIST", "GET"):
        front.fail(served(many, "many"), kind)
    address = with_options(s3.url("many"), s3.options | {"cache_dir": str(tmp_path)})
    asked = []
    for place in (str(many), address, address):
        front.requests.clear()
        with open_log_dir(place).log("events", 0) as log:
            found = find_offset(log, time_ms)
        assert found is not None
        assert found[:2] == (time_ms - START_MS, time_ms)
        asked.append(front.count() - front.count("LIST"))
    segments = len(list((many / "events-0").glob("*.log")))
    assert asked[1] <= 2 * segments
    assert asked[2] < asked[1]


def test_a_short_range_reads_few_bytes(s3: S3Server, mapped: Path, front: Front, tmp_path: Path) -> None:
    for kind in ("LIST", "GET"):
        front.fail(served(mapped, "mapped"), kind)
    address = with_options(s3.url("mapped"), s3.options | {"cache_dir": str(tmp_path)})
    start = MAPPED // 2
    wanted = list(range(start, start + MAPPED // 100))
    found = tidelog.scan(address, "events", START_MS + start, START_MS + start + MAPPED // 100, columns=["offset"])
    assert found.read_all()["offset"].to_pylist() == wanted
    logs = sum(path.stat().st_size for path in (mapped / "events-0").glob("*.log"))
    segments = len(list((mapped / "events-0").glob("*.log")))
    # Each segment's head and end are read too, whatever its size: here they are as large as the range.
    assert front.sent_bytes(".log") <= logs * 0.02 + segments * 36 * 1024


@pytest.mark.thorough("test_a_listing_goes_on_where_it_broke_off counts the pages of a smaller bucket")
def test_a_bucket_of_many_objects_opens_cheaply(s3: S3Server, front: Front) -> None:
    keys = [
        (f"huge/topic-{topic:02}-{partition}/{segment * 1000:020}{suffix}", 1000)
        for topic in range(50)
        for partition in range(10)
        for segment in range(67)
        for suffix in (".log", ".index", ".timeindex")
    ]
    assert len(keys) >= 100_000
    front.fail(listing(keys), "LIST")
    address = with_options(s3.url("huge"), s3.options)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    try:
        folder = open_log_dir(address)
        assert sum(map(len, folder.topics().values())) == 500
        gc.collect()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert front.count() <= 110
    assert peak - before <= 60e6
