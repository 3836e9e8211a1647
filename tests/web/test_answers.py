"""The answers are those of `tidelog.scan`, `find_offset` and the command line, for the golden logs of Kafka 3.9.1."""

from __future__ import annotations

import io
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidelog
from tests.cli.conftest import KAFKA_3, run_ok
from tests.web.conftest import NOW, Answers, answering
from tidelog.model import TopicPartition
from tidelog.reader.log_dir import LogDir
from tidelog.reader.log_dirs import LogDirs
from tidelog.reader.time_search import find_offset
from tidelog.web.endpoints.topics import topic as answer_topic
from tidelog.web.jobs import Job
from tidelog.web.query import Query
from tidelog.web.summaries import Summaries
from tidelog.web.values import beginning

TOPICS = sorted(name for name in LogDir(KAFKA_3).topics() if not name.startswith("__"))


def scanned(topic: str, **arguments: Any) -> list[tuple[int | None, int, int]]:
    """(timestamp, partition, offset) of each record, in the scan's order."""
    table = tidelog.scan(KAFKA_3, topic, columns=["timestamp", "partition", "offset"], **arguments).read_all()
    times = table["timestamp"].cast(pa.int64()).to_pylist()
    return list(zip(times, table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


def places(records: list[dict[str, Any]]) -> list[tuple[int | None, int, int]]:
    return [(one["timestamp_ms"], one["partition"], one["offset"]) for one in records]


@pytest.mark.parametrize("topic", [topic for topic in TOPICS if not topic.endswith("-lat")])
def test_pages_of_records_are_the_scan(golden: Answers, topic: str) -> None:
    every = scanned(topic)
    assert places(golden.all_records(topic=topic, order="offset", limit=211)) == every
    timed = sorted(one for one in every if one[0] is not None)
    assert places(golden.all_records(topic=topic, order="time", limit=211)) == timed


@pytest.mark.parametrize("topic", ["deleted-prefix", "two-partitions", "v2-zstd-ct", "future-pinned"])
def test_counts_and_cuts_of_ranges(golden: Answers, topic: str) -> None:
    times = sorted(one[0] for one in scanned(topic) if one[0] is not None)
    start, end = times[len(times) // 4], times[-len(times) // 4]
    found = golden.ask("counts", topic=topic, start=start, end=end, buckets=7)
    assert found["exact"] and found["why"] == []
    assert (found["start_ms"], found["end_ms"]) == (start, end)
    wanted = Counter((one - start) // found["step_ms"] for one in times if start <= one < end)
    assert found["counts"] == [wanted[bucket] for bucket in range(len(found["counts"]))]
    cut = golden.ask("cut", topic=topic, start=start, end=end)
    assert cut["done"]
    for part in cut["partitions"]:
        number = part["partition"]
        exact = {one[2] for one in scanned(topic, start=start, end=end, partitions=[number])}
        log = LogDir(KAFKA_3).log(topic, number)
        first, until = (
            log.log_end_offset if one is None else one.offset for one in (find_offset(log, start), find_offset(log, end))
        )
        within = {one[2] for one in scanned(topic, offsets={number: (first, max(first, until))})}
        assert (part["start_offset"], part["end_offset"]) == (first, max(first, until))
        sizes = (len(exact), len(within), len(exact - within), len(within - exact))
        assert tuple(part[name] for name in ("exact", "cut", "lost", "superfluous")) == sizes


def test_some_cut_loses_records(golden: Answers) -> None:
    """The test before would pass for a cut that always loses none."""
    times = [one[0] for one in scanned("v2-none-ct")]
    middle = sorted(times)[len(times) // 2]
    assert golden.ask("cut", topic="v2-none-ct", end=middle)["total"]["lost"] > 0


def test_without_bounds_all_is_counted(golden: Answers) -> None:
    for topic in TOPICS:
        timed = sum(one[0] is not None for one in scanned(topic))
        found = golden.ask("counts", topic=topic, buckets=3)
        assert (sum(found["counts"]), found["exact"]) == (timed, True), topic


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({"key": ["k1", "k13"]}, ["--key", "k1", "--key", "k13"]),
        ({"grep": "^[a-c]+ "}, ["--grep", "^[a-c]+ "]),
        ({"grep": "ABC", "ignore_case": "1"}, ["--grep", "ABC", "-i"]),
        ({"header": ["h1=x"]}, ["--header", "h1=x"]),
        ({"where": "offset % 3 = 0 and key is not null"}, ["--where", "offset % 3 = 0 and key is not null"]),
        ({"key_decode": "hex", "key": ["6b31"]}, ["--key-decode", "hex", "--key", "6b31"]),
        ({"start": "2020-09-20T12:28", "end": "+1m"}, ["--from", "2020-09-20T12:28", "--to", "+1m"]),
        ({"partitions": "1", "isolation": "read_committed"}, ["-p", "1", "--isolation", "read_committed"]),
        ({"offset": "40", "end_offset": "70"}, ["--offset", "40:70"]),
    ],
)
def test_a_request_is_the_same_on_the_command_line(golden: Answers, given: dict[str, Any], options: list[str]) -> None:
    topic = "two-partitions"
    ran = run_ok("cat", KAFKA_3, topic, "--format", "jsonl", *options)
    found = golden.all_records(topic=topic, order="offset", limit=17, **given)
    assert [(one["partition"], one["offset"]) for one in ran.json_lines] == [(one["partition"], one["offset"]) for one in found]
    assert found and golden.client.get("/api/export", params={"topic": topic, "order": "offset", **given}).text == ran.stdout
    parquet = golden.client.get("/api/export", params={"topic": topic, "format": "parquet", **given})
    assert pq.read_table(io.BytesIO(parquet.content)).num_rows == len(found)
    timed = [one for one in found if one["timestamp_ms"] is not None]
    counted = golden.ask("counts", topic=topic, start=1, end=2**52, **given)["counts"] if "start" not in given else [len(timed)]
    assert sum(counted) == len(timed)


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    """Two folders as one source, with topics whose names programs may take for something else."""
    folder = tmp_path_factory.mktemp("disks")
    for disk, topics in (("d1", ("-dash", "--help", "a" * 249)), ("d2", ("...", "select"))):
        with tidelog.Broker(folder / disk, **{"log.retention.ms": -1}) as broker:
            for topic in topics:
                broker.create_topic(topic, 2)
                for at in range(6):
                    broker.produce(topic, b'{"at":%d}' % at, key=b"k'%d" % (at % 2), timestamp_ms=NOW + at)
    with answering(f"{folder / 'd1'}:{folder / 'd2'}") as found:
        yield found


@pytest.mark.parametrize("topic", ["-dash", "--help", "...", "a" * 249, "select"])
def test_the_lines_give_what_the_page_shows(disks: Answers, topic: str) -> None:
    import shlex

    of_values = {"decode": "json", "where": "value.at % 3 = 1"}
    by_path = {"where": "value->>'$.at' IN ('1', '4')"}
    for given in (
        {"start": NOW + 1, "end": NOW + 5},
        {"offset": 1, "end_offset": 3},
        {"key": "k'1", "start": NOW},
        of_values,
        by_path,
    ):
        shown = places(disks.all_records(topic=topic, order="time", **given))
        said = disks.ask("lines", topic=topic, order="time", **given)
        _, cat, *rest = shlex.split(said["cli"])
        assert places_of(run_ok(cat, "--format", "jsonl", *rest).json_lines) == shown and shown
        *command, select = shlex.split(said["sql"])[1:]
        assert ("'\"'\"'" in said["sql"]) == (given is by_path), "readable unless a shell would change it"
        select = select.replace("*", 'partition, "offset", epoch_ms(timestamp) AS timestamp', 1)
        assert places_of(run_ok(*command, select, "--json").json_lines) == shown
        if "key" not in given and given is not of_values:
            scope: dict[str, Any] = {}
            exec(said["python"], scope)
            assert scope["records"].read_all().num_rows == len(shown)
    assert "SQL" in "".join(disks.ask("lines", topic=topic, grep="x")["notes"])
    assert "Spark" in "".join(disks.ask("lines", topic=topic, offset=1)["notes"])


def places_of(lines: list[dict[str, Any]]) -> list[tuple[int | None, int, int]]:
    return [(one["timestamp"], one["partition"], one["offset"]) for one in lines]


def test_internal_topics_are_json_unless_something_else_is_asked_for(disks: Answers) -> None:
    given = {"topic": "__cluster_metadata", "order": "offset"}
    for decode in (None, "auto"):
        records = disks.ask("records", decode=decode, **given)["records"]
        values = [json.loads(one["value"]["text"]) for one in records]
        assert {"TOPIC_RECORD", "PARTITION_RECORD"} <= {one["type"] for one in values}
        assert "auto" not in disks.ask("lines", decode=decode, **given)["cli"]
    hexed = disks.ask("records", decode="hex", **given)["records"][0]["value"]
    raw = disks.ask("records", decode="raw", **given)["records"][0]["value"]
    assert hexed["kind"] == "bytes" and raw["kind"] == "text" and "decoded" not in raw
    assert "--decode raw" in disks.ask("lines", decode="raw", **given)["cli"]


def test_a_range_that_ends_before_its_start_is_said_in_times(golden: Answers) -> None:
    error = golden.refused("time", 400, start="2026-11-19T10:00", end="2026-11-19T09:00")
    assert (error["found"], error["expected"]) == ("2026-11-19T09:00:00.000Z", "2026-11-19T10:00:00.000Z or later")


@pytest.mark.parametrize("kind", [pa.binary(), pa.binary_view(), pa.string()])
def test_the_beginning_of_a_value(kind: pa.DataType) -> None:
    values = ["", None, "x", "y" * 12, "z" * 13, "v" * 5000, "w" * 20]
    array = pa.array([None, *values], kind).slice(1)
    for row, value in enumerate(values):
        expected = (None, 0) if value is None else (value.encode()[:7], len(value))
        assert beginning(array, row, 7) == expected


def test_the_line_for_the_command_line_runs(golden: Answers) -> None:
    import shlex

    given = {"topic": "two-partitions", "start": "2020-09-20T12:28", "end": "+1m", "grep": "a b'c|d", "partitions": "0"}
    said = golden.ask("lines", order="time", **given)
    words = shlex.split(said["cli"])
    assert words[0] == "tidelog"
    ran = run_ok(*words[1:], "--format", "jsonl")
    found = golden.all_records(order="time", **given)
    assert [one["offset"] for one in ran.json_lines] == [one["offset"] for one in found] and found
    scope: dict[str, Any] = {}
    exec(said["python"], scope)
    assert scope["records"].read_all().num_rows == len(golden.all_records(order="offset", **{**given, "grep": None}))


def test_topics_and_partitions_are_those_of_stat(golden: Answers) -> None:
    stat = [one for one in run_ok("stat", KAFKA_3, "--json").json_lines if one["type"] == "partition"]
    found = golden.ask_again("topics", limit=1000)
    assert [one["topic"] for one in found["topics"]] == sorted({one["topic"] for one in stat}) and not found["more"]
    for one in found["topics"]:
        parts = [part for part in stat if part["topic"] == one["topic"]]
        assert one["bytes"] == sum(part["bytes"] for part in parts) and one["partitions"] == len(parts)
        details = golden.ask_again("topic", topic=one["topic"])["partitions"]
        for part, shown in zip(parts, details, strict=True):
            names = {"log_start": "log_start_offset", "end": "log_end_offset", "high_watermark": "high_watermark"}
            assert {name: shown[name] for name in names} == {name: part[said] for name, said in names.items()}
            assert (shown["segments"], shown["pending"]) == (part["segments"], False)
    first = golden.ask_again("topics", limit=3)
    following = golden.ask_again("topics", limit=3, after=first["topics"][-1]["topic"])
    assert first["more"] and [one["topic"] for one in following["topics"]] == [one["topic"] for one in found["topics"][3:6]]
    assert {one["topic"] for one in golden.ask_again("topics", q="ZSTD")["topics"]} == {"v2-zstd-ct", "v2-zstd-lat"}


def test_a_topic_whose_partitions_take_too_long_is_read_in_parts(tmp_path: Path) -> None:
    """A response has only what was read in time, and the next one goes on after it: nothing is shown as empty."""
    for number in range(5):
        shutil.copytree(KAFKA_3 / "two-partitions-0", tmp_path / f"two-partitions-{number}")
    with answering(str(tmp_path)) as answers:
        whole = answers.ask("topic", topic="two-partitions")
        parts: list[dict[str, Any]] = []
        found: dict[str, Any] = {"more": True}
        while found["more"]:
            after = [("after", str(parts[-1]["partition"]))] if parts else []
            query = Query([("topic", "two-partitions"), *after], answers.context.clock)
            found = answer_topic(answers.context, query, Job(limit_s=0))
            assert len(found["partitions"]) == 1
            parts += found["partitions"]
    assert parts == whole["partitions"]
    assert not whole["more"]
    assert [(one["partition"], one["pending"]) for one in parts] == [(number, False) for number in range(5)]


def test_segments_have_the_bounds_of_their_records(golden: Answers) -> None:
    for topic in TOPICS:
        found = golden.ask_again("segments", topic=topic, partition=0)
        assert not found["pending"]
        latest = -1
        for one in found["segments"]:
            times = [
                time for time, _, offset in scanned(topic, partitions=[0]) if one["base_offset"] <= offset < one["end_offset"]
            ]
            timed = [time for time in times if time is not None]
            if one["base_offset"] >= found["segments"][0]["base_offset"] and timed and topic != "deleted-prefix":
                assert (one["min_ms"], one["max_ms"], one["has_map"]) == (min(timed), max(timed), True)
                assert one["late"] == (min(timed) < latest)
                latest = max(latest, *timed)
        few = golden.ask_again("segments", topic=topic, partition=0, width=2)
        assert len(few["segments"]) <= 2 and sum(one["count"] for one in few["segments"]) == found["total"]
        assert sum(one["bytes"] for one in few["segments"]) == sum(one["bytes"] for one in found["segments"])


def test_a_look_up_is_the_explanation(golden: Answers) -> None:
    for time in ("2020-09-20T12:27", "2020-09-20T12:30", "2030-01-01"):
        found = golden.ask("lookup", topic="v2-zstd-ct", partition=0, timestamp=time)
        said = run_ok("find", KAFKA_3, "v2-zstd-ct", "--at", time, "--explain", "-p", 0).lines
        assert all(any(one["text"] in line for line in said) for one in found["steps"])
        lines = run_ok("find", KAFKA_3, "v2-zstd-ct", "--at", time, "--json").json_lines
        assert (found["answer"] or {"offset": -1})["offset"] == lines[0]["offset"]
    assert golden.ask("lookup", topic="v2-zstd-ct", partition=0, timestamp="max")["answer"]["timestamp_ms"] is not None


def test_retention_is_that_of_the_command(golden: Answers) -> None:
    from tests.cli.conftest import run
    from tidelog.clock import ManualClock

    for topic in ("future-pinned", "deleted-prefix"):
        said = [one for one in run("retention", KAFKA_3, topic, "--json", clock=ManualClock(NOW)).json_lines if "goes_ms" in one]
        (part,) = golden.ask("retention", topic=topic)["partitions"]
        assert len(said) == part["total"]
        for line, one in zip(said, part["segments"], strict=True):
            assert (one["goes_ms"], one["reason"]) == (line["goes_ms"], line["reason"])
            kept = one["kept_by"] or {"segment": None, "offset": None, "timestamp_ms": None, "future": False}
            assert [kept[name] for name in ("segment", "offset", "timestamp_ms", "future")] == [
                line[name] for name in ("kept_by_segment", "kept_by_offset", "kept_by_timestamp", "kept_by_future")
            ]


def test_one_record(golden: Answers) -> None:
    found = golden.ask("record", topic="v2-zstd-ct", partition=0, offset=5)
    (listed,) = golden.ask("records", topic="v2-zstd-ct", offset=5, limit=1, order="offset")["records"]
    assert {name: value for name, value in found["record"].items() if name != "create_time_ms"} == listed
    assert found["batch"]["base_offset"] <= 5 <= found["batch"]["last_offset"] and found["batch"]["codec"] == "zstd"
    data = golden.client.get("/api/bytes", params={"topic": "v2-zstd-ct", "partition": 0, "offset": 5})
    assert data.content.decode() == listed["value"]["text"]
    assert data.headers["content-disposition"] == 'attachment; filename="v2-zstd-ct-0-5.value"'
    golden.refused("record", 404, topic="v2-zstd-ct", partition=0, offset=10**6)
    golden.refused("record", 404, topic="v2-zstd-ct", partition=9, offset=0)


@pytest.mark.parametrize(
    ("path", "status", "given"),
    [
        ("topic", 400, {}),
        ("topic", 404, {"topic": "nope"}),
        ("topics", 404, {"source": "7"}),
        ("topics", 400, {"limit": "0"}),
        ("topics", 400, {"limit": "9" * 5000}),
        ("records", 400, {"topic": "v2-zstd-ct", "start": "soon"}),
        ("records", 400, {"topic": "v2-zstd-ct", "strat": "-15m"}),
        ("records", 400, {"topic": "v2-zstd-ct", "start": "2020", "end": "2019"}),
        ("records", 400, {"topic": "v2-zstd-ct", "grep": "("}),
        ("records", 400, {"topic": "v2-zstd-ct", "where": "no_such_column > 1"}),
        ("records", 400, {"topic": "v2-zstd-ct", "after": "x.y"}),
        ("records", 400, {"topic": "v2-zstd-ct", "order": "time", "after": "1.2"}),
        ("records", 400, {"topic": "v2-zstd-ct", "partitions": "1-x"}),
        ("records", 404, {"topic": "v2-zstd-ct", "partitions": "5"}),
        ("records", 400, {"topic": ["a", "b"]}),
        ("segments", 400, {"topic": "v2-zstd-ct", "partition": "-1"}),
        ("segments", 404, {"topic": "../../etc", "partition": "0"}),
        ("lookup", 400, {"topic": "v2-zstd-ct", "partition": "0"}),
        ("tail", 404, {"topic": "nope"}),
        ("export", 404, {"topic": "nope"}),
        ("group", 404, {"group": "nobody"}),
    ],
)
def test_wrong_requests_are_one_error(golden: Answers, path: str, status: int, given: dict[str, Any]) -> None:
    golden.refused(path, status, **given)


def test_values_are_decoded_as_on_the_command_line(tmp_path_factory: pytest.TempPathFactory) -> None:
    import msgpack

    import tidelog as library
    from tests.broker.conftest import RunningBroker
    from tests.web.conftest import answering
    from tidelog import NewRecord
    from tidelog.clock import ManualClock
    from tidelog.decoding.decodings import DecodeTexts

    folder = tmp_path_factory.mktemp("decoded") / "data"
    running = RunningBroker(folder, ManualClock(NOW), log_retention_ms=-1)
    try:
        running.create_topic("packed", 1)
        with library.connect(running.bootstrap_servers, clock=running.clock) as client:
            values = [msgpack.packb({"n": at, "text": "<b>" * at}) for at in range(3)]
            large = msgpack.packb("x" * (2 << 20))
            broken = [b"\xc1", None, large[: 1 << 19]]
            client.produce_many("packed", [NewRecord(one, key=b"k", timestamp=NOW) for one in (*values, *broken)])
    finally:
        running.stop()
    with answering(str(folder)) as found:
        plain = [one["value"] for one in found.ask("records", topic="packed", order="offset")["records"]]
        page = found.ask("records", topic="packed", order="offset", decode="msgpack")
        shown = [one["value"] for one in page["records"]]
        assert [json.loads(one["text"]) for one in shown[:3]] == [{"n": at, "text": "<b>" * at} for at in range(3)]
        assert all(one["kind"] == "json" and one["decoded"] == "msgpack" for one in shown[:3])
        assert shown[3] == {**plain[3], "error": "not msgpack"} and shown[4] == plain[4] and shown[5]["error"] == "not msgpack"
        assert any("not msgpack" in note for note in page["notes"])
        assert [one["value"]["size"] for one in page["records"]] == [one["size"] for one in plain]
        hexed = found.ask("records", topic="packed", order="offset", decode="hex", key_decode="hex")["records"][0]
        assert bytes.fromhex(hexed["value"]["hex"]) == values[0] and hexed["key"]["hex"] == b"k".hex()
        said = run_ok("cat", folder, "packed", "--decode", "msgpack", "--format", "jsonl").stdout
        given = {"topic": "packed", "order": "offset", "decode": "msgpack"}
        assert found.client.get("/api/export", params=given).text == said
        assert "--decode msgpack" in found.ask("lines", **given)["cli"]
        found.refused("records", 400, topic="packed", decode="xml")
        found.context.decode = DecodeTexts(("packed=msgpack",))
        again = found.ask("record", topic="packed", partition=0, offset=1)["record"]
        assert json.loads(again["value"]["text"]) == {"n": 1, "text": "<b>"}


def test_summaries_of_several_folders_are_cached(disks: Answers) -> None:
    with disks.context.sources.named(None).borrowed() as source:
        assert isinstance(source.log_dir, LogDirs)
        summaries, key = Summaries(), TopicPartition("select", 0)  # In the second folder.
        found = summaries.of(source.log_dir, key)
        assert found.error is None and summaries.known(source.log_dir, key) is found
