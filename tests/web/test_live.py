"""Logs that change while they are looked at, brokers and folders that go away, and values made to do harm."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import tidelog
from tests.broker.conftest import RunningBroker
from tests.cli.conftest import KAFKA_3, run
from tests.patience import PATIENCE_S
from tests.web.conftest import BROKERS, FOLDER, NOW, Answers, answering
from tests.web.leaderless import RECORDS, Leaderless
from tidelog import NewRecord
from tidelog.clock import ManualClock
from tidelog.web import source_pool
from tidelog.web.app import make_app
from tidelog.web.context import Context
from tidelog.web.endpoints.tail import Tail
from tidelog.web.jobs import LARGE_BYTES, BusyError, Job, Jobs, Lane, Stopped
from tidelog.web.query import Query
from tidelog.web.streams import _Pipe

Both = tuple[Answers, RunningBroker]


def test_a_folder_and_its_broker_answer_the_same(both: Both) -> None:
    found, _ = both
    for order in ("time", "offset"):
        one, other = (found.all_records(source=source, topic="orders", order=order, limit=7) for source in (FOLDER, BROKERS))
        assert one == other and len(one) == 80
    given = {"topic": "orders", "start": NOW - 30_000, "end": NOW - 10_000}
    for path, names in (("counts", ("counts", "exact")), ("cut", ("partitions", "total", "done"))):
        one, other = (found.ask(path, source=source, **given) for source in (FOLDER, BROKERS))
        assert [one[name] for name in names] == [other[name] for name in names], path
    assert found.ask("cut", **given)["total"]["lost"] > 0
    one, other = (found.ask_again("topic", source=source, topic="orders")["partitions"] for source in (FOLDER, BROKERS))
    for a, b in zip(one, other, strict=True):
        assert [a[name] for name in ("partition", "log_start", "end", "last_ms")] == [
            *(b[name] for name in ("partition", "log_start", "end")),
            max(NOW - 1000, b["last_ms"]),
        ]
    for source in (FOLDER, BROKERS):
        (listed,) = [one for one in found.ask_again("topics", source=source)["topics"] if one["topic"] == "orders"]
        assert (listed["records"], listed["partitions"], listed["pending"]) == (80, 2, False)
    for time_ms in (NOW - 20_000, NOW + 1):
        answers = [
            found.ask("lookup", source=source, topic="orders", partition=0, timestamp=time_ms)["answer"]
            for source in (FOLDER, BROKERS)
        ]
        assert answers[0] == answers[1]
    assert found.refused("segments", 400, source=BROKERS, topic="orders", partition=0)["expected"] == "a data folder"


def test_groups_are_those_of_the_command(both: Both) -> None:
    found, running = both
    said = run("groups", "lag", found.context.sources.pools[0].address, "--json", clock=running.clock).json_lines
    for source in (FOLDER, BROKERS):
        listed = found.ask("groups", source=source)
        assert [(one["group"], one["lag"], one["lag_ms"]) for one in listed["groups"]] == [
            (one["group"], one["lag"], one["lag_ms"]) for one in said
        ]
        one = found.ask("group", source=source, group="early")
        assert {part["partition"]: (part["committed"], part["lag"]) for part in one["partitions"]} == {0: (5, 35), 1: (40, 0)}
        assert one["partitions"][0]["lag_ms"] == 35_000
        found.refused("group", 404, source=source, group="nobody")


@pytest.mark.parametrize("source", [FOLDER, BROKERS])
def test_a_tail_shows_what_arrives(both: Both, source: str) -> None:
    found, running = both
    running.create_topic(f"tail-{source}", 1)
    pairs = [("source", source), ("topic", f"tail-{source}")]
    tail = Tail(found.context, Query(pairs, running.clock))
    filtered = Tail(found.context, Query([*pairs, ("grep", "^[13]$")], running.clock))
    assert tail.poll(Job(PATIENCE_S)) == []
    with tidelog.connect(running.bootstrap_servers, clock=running.clock) as client:
        client.produce_many(f"tail-{source}", [NewRecord(b"%d" % at, timestamp=NOW) for at in range(4)])
        assert values(tail.poll(Job(PATIENCE_S))) == ["0", "1", "2", "3"]
        assert values(filtered.poll(Job(PATIENCE_S))) == ["1", "3"]
        client.produce_many(f"tail-{source}", [NewRecord(b"%d" % at, timestamp=NOW) for at in range(3000)])
    events = tail.poll(Job(PATIENCE_S))
    (dropped,) = [json.loads(one.split(b"data: ")[1]) for one in events if one.startswith(b"event: dropped")]
    assert len(values(events)) + dropped["offsets"] == 3000
    assert tail.poll(Job(PATIENCE_S)) == []


def values(events: list[bytes]) -> list[str]:
    return [json.loads(one.split(b"data: ")[1])["value"]["text"] for one in events if one.startswith(b"event: record\n")]


def test_a_partition_without_a_leader_hides_no_other(tmp_path: Path) -> None:
    with Leaderless() as broker, answering(broker.address) as found:
        one, other = found.ask("topic", topic="t")["partitions"]
        assert (one["pending"], one["end"]) == (False, RECORDS)
        assert other == {"partition": 1, "pending": True, "notes": []}
        listed = found.ask("topics")
        assert not listed["pending"], "another request would find no more"
        (row,) = listed["topics"]
        assert (row["records"], row["notes"]) == (None, ["partitions not read: 1"])
        broker.leaders[1] = 1
        assert [part["end"] for part in found.ask("topic", topic="t")["partitions"]] == [RECORDS, RECORDS]
        (row,) = found.ask("topics")["topics"]
        assert (row["records"], row["notes"]) == (2 * RECORDS, [])


def test_appended_records_are_seen(tmp_path: Path) -> None:
    running = RunningBroker(tmp_path / "data", ManualClock(NOW), log_retention_ms=-1)
    try:
        running.create_topic("live", 1)
        with (
            tidelog.connect(running.bootstrap_servers, clock=running.clock) as client,
            answering(str(tmp_path / "data")) as found,
        ):
            for turn in range(1, 4):
                client.produce_many("live", [NewRecord(b"x", timestamp=NOW + turn)])
                assert len(found.all_records(topic="live")) == turn
                assert sum(found.ask("counts", topic="live")["counts"]) == turn
                (listed,) = [one for one in found.ask_again("topics")["topics"] if one["topic"] == "live"]
                assert (listed["records"], listed["last_ms"]) == (turn, NOW + turn)
                assert found.ask_again("segments", topic="live", partition=0)["segments"][-1]["max_ms"] == NOW + turn
    finally:
        running.stop()


def test_a_folder_that_vanishes_and_comes_back(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(KAFKA_3, tmp_path / "data"))
    with answering(str(folder), str(KAFKA_3)) as found:
        before = found.ask_again("topics")
        folder.rename(tmp_path / "gone")
        for path in ("topics", "records", "counts", "groups"):
            found.refused(path, 404, topic="v2-none-ct")
        assert found.ask_again("topics", source="1")["total"] == before["total"]
        (tmp_path / "gone").rename(folder)
        assert found.ask_again("topics") == before


def test_a_broker_that_goes_away(tmp_path: Path) -> None:
    running = RunningBroker(tmp_path / "data", ManualClock(NOW), log_retention_ms=-1)
    running.create_topic("live", 1)
    with answering(str(KAFKA_3), running.bootstrap_servers) as found:
        assert found.ask_again("topics", source="1")["total"] == 1
        running.stop()
        found.refused("topics", 502, source="1")
        assert found.ask_again("topics")["total"] > 1


def test_brokers_that_do_not_answer_delay_no_other_source(golden: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_pool, "BROKERS_MS", PATIENCE_S * 1000)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # like a stopped process: the kernel accepts, nobody answers
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with answering(str(KAFKA_3), address) as found, ThreadPoolExecutor(12) as threads:
            began = time.monotonic()
            waiting = [threads.submit(found.client.get, "/api/topics?source=1") for _ in range(12)]
            assert found.ask("time", start="0")["start"]["ms"] == 0
            assert found.ask("topics", source=FOLDER)["topics"]
            assert not any(one.done() for one in waiting)
            silent.close()  # so that this test need not wait for the timeout
            # Four threads for this source: the other eight requests are refused at once instead of waiting in turn.
            errors = [one.result() for one in waiting]
            assert {one.status_code for one in errors} == {502}
            assert {one.json()["error"]["where"] for one in errors} == {address}
            pool = found.context.sources.pools[1]
            assert pool.unreachable_until_s > began
            monkeypatch.setattr(source_pool, "open_source", lambda *_, **__: pytest.fail("asked again at once"))
            pool.unreachable_until_s = time.monotonic() + PATIENCE_S
            assert "broker" in found.refused("topics", 502, source=BROKERS)["what"]


def test_damage_is_told_and_hides_nothing_else(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(KAFKA_3, tmp_path / "data"))
    log = sorted((folder / "v2-none-ct-0").glob("*.log"))[0]
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    with answering(str(folder)) as found:
        assert ".log" in found.refused("records", 409, topic="v2-none-ct", limit=1000)["where"]
        segments = found.ask_again("segments", topic="v2-none-ct", partition=0)["segments"]
        assert any(one["notes"] for one in segments) and any(one["max_ms"] for one in segments)
        assert found.ask_again("topics")["total"] > 1 and found.all_records(topic="v2-zstd-ct", limit=1000)


HOSTILE = {
    "script": b"<script>alert(1)</script><img src=x onerror=alert(1)>",
    "control": bytes(range(32)) + b"\x7f\xc2\x80\xc2\x9b[2J",
    "marks": "\u202edrow \u2066abc\u2069 \u2028\u2029".encode(),
    "not utf-8": b"\xff\xfe\x80abc",
    "cut": b"a" + "𝄞".encode() * 2000,
    "large": b"y" * 900_000,
    "deep": b"[" * 200_000,
    "number": b"1" * 50_000,
    "empty": b"",
}


def test_hostile_values_are_plain_text_in_ascii(tmp_path: Path) -> None:
    running = RunningBroker(tmp_path / "data", ManualClock(NOW), log_retention_ms=-1)
    try:
        running.create_topic("hostile", 1)
        with tidelog.connect(running.bootstrap_servers, clock=running.clock) as client:
            records = [
                NewRecord(value, key=value[:100], headers=[(name, value[:2000])], timestamp=NOW)
                for name, value in HOSTILE.items()
            ]
            client.produce_many("hostile", records)
    finally:
        running.stop()
    with answering(str(tmp_path / "data")) as found:
        answer = found.client.get("/api/records", params={"topic": "hostile", "order": "offset"})
        assert answer.content.isascii() and not any(byte < 32 for byte in answer.content)
        assert len(answer.content) < 200_000
        shown = {name: one["value"] for name, one in zip(HOSTILE, answer.json()["records"], strict=True)}
        for name, value in HOSTILE.items():
            assert shown[name]["size"] == len(value) and shown[name]["cut"] == (len(value) > 4096)
            if name == "not utf-8":
                assert (shown[name]["kind"], bytes.fromhex(shown[name]["hex"])) == ("bytes", value)
            else:
                assert (
                    value.startswith(shown[name]["text"].encode()) and len(shown[name]["text"].encode()) > len(value[:4096]) - 4
                )
            data = found.client.get(
                "/api/bytes", params={"topic": "hostile", "partition": 0, "offset": list(HOSTILE).index(name)}
            )
            assert data.content == value and data.headers["content-type"] == "application/octet-stream"
            assert data.headers["content-disposition"].startswith("attachment")
        whole = found.ask("record", topic="hostile", partition=0, offset=list(HOSTILE).index("large"))["record"]["value"]
        assert not whole["cut"] and len(whole["text"]) == 900_000


def test_long_reads_do_not_keep_others_waiting(golden: Answers) -> None:
    """All threads for reads are taken: quick answers come, and a read whose client has gone ends."""
    started, ended = threading.Semaphore(0), threading.Semaphore(0)

    def work(job: Job) -> None:
        started.release()
        try:
            while True:
                job.check()
                time.sleep(0.001)
        except Stopped:
            ended.release()
            raise

    async def main() -> Any:
        jobs = Jobs()
        gone = asyncio.Event()
        reads = [asyncio.create_task(jobs.run(Lane.READ, PATIENCE_S, work, gone.wait)) for _ in range(Lane.READ.value[1])]
        while not all([await asyncio.to_thread(started.acquire) for _ in reads]):
            pass
        answer = await jobs.run(Lane.QUICK, PATIENCE_S, lambda job: 7)
        gone.set()
        done = await asyncio.gather(*reads, return_exceptions=True)
        for _ in reads:
            await asyncio.to_thread(ended.acquire)
        jobs.close()
        return answer, [type(one) for one in done]

    answer, kinds = asyncio.run(main())
    assert answer == 7 and set(kinds) == {Stopped}


def test_one_large_read_at_a_time(golden: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.web.jobs.TURN_S", 0)
    jobs = Jobs()
    turn = jobs.turn
    first, second = Job(PATIENCE_S, turn), Job(PATIENCE_S, turn)
    first.take_turn(LARGE_BYTES)
    first.take_turn(LARGE_BYTES)
    second.take_turn(LARGE_BYTES - 1)
    with pytest.raises(BusyError):
        second.take_turn(LARGE_BYTES)
    first.end()
    second.take_turn(LARGE_BYTES)
    second.end()

    with TestClient(make_app(golden.context, jobs)) as client:
        found = Answers(client, golden.context)
        with turn:
            error = found.refused("export", 503, topic="v2-none-ct")
            assert error["what"] == "the server is busy with another download or large read"
            assert found.ask("records", topic="v2-none-ct")["records"]
        for _ in range(2):
            assert client.get("/api/export", params={"topic": "v2-none-ct"}).status_code == 200
    jobs.close()


def test_a_page_of_records_is_bounded_in_bytes(tmp_path: Path) -> None:
    running = RunningBroker(tmp_path / "data", ManualClock(NOW), log_retention_ms=-1)
    try:
        running.create_topic("wide", 1)
        with tidelog.connect(running.bootstrap_servers, clock=running.clock) as client:
            for _ in range(30):
                client.produce_many("wide", [NewRecord(b"z" * 5000, key=b"k" * 4096, timestamp=NOW) for _ in range(40)])
    finally:
        running.stop()
    with answering(str(tmp_path / "data")) as found:
        for order in ("time", "offset"):
            page = found.ask("records", topic="wide", limit=1000, order=order)
            assert 400 < len(page["records"]) < 600 and page["next"] is not None
            offsets = [one["offset"] for one in found.all_records(topic="wide", limit=1000, order=order)]
            assert offsets == list(range(1200))


def test_a_job_that_is_late_says_where_to_continue(golden: Answers) -> None:
    from tidelog.web.endpoints.records import records

    found: list[int] = []
    after = ""
    for _ in range(5000):
        query = Query([("topic", "two-partitions"), ("order", "offset"), ("limit", "1000"), ("after", after)], ManualClock(NOW))
        page = records(golden.context, query, Job(0.0))
        found += [one["offset"] for one in page["records"]]
        after = page["next"]
        if page["done"]:
            break
        if not page["records"]:
            # No time at all is no progress: as a server it has some.
            page = records(golden.context, query, Job(PATIENCE_S))
            found += [one["offset"] for one in page["records"]]
            break
    assert len(found) == len(golden.all_records(topic="two-partitions", order="offset", limit=1000))


def test_contexts_of_several_sources_are_kept_apart(golden: Answers) -> None:
    context = Context.of([str(KAFKA_3), str(KAFKA_3)])
    assert [pool.name for pool in context.sources.pools] == ["0", "1"]
    context.sources.close()


def test_a_download_that_outlives_the_server_ends_in_silence() -> None:
    loop = asyncio.new_event_loop()
    pipe = _Pipe(Job(0), loop, asyncio.Queue())
    loop.close()
    pipe.write(b"a record")
    with pytest.raises(Stopped):  # A coroutine that is never awaited would be a warning, which is an error here.
        pipe.send()
