"""`tidelog cat`'s selections, orders, counts and formats, against the records that a plain `cat` prints."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelog
from tests.cli.conftest import KAFKA_3, run, run_ok, start
from tests.patience import PATIENCE_S
from tests.sources.logs import LogBuilder
from tidelog.cli.records import reading
from tidelog.cli.records.format_string import parse_format
from tidelog.cli.records.offset_option import OffsetOption, parse_offset
from tidelog.errors import InvalidArgumentError
from tidelog.model import TopicPartition
from tidelog.sources.scan_plan import ScanPlan
from tidelog.sources.selection import sorting
from tidelog.sources.source import Ends
from tidelog.times import format_time

TOPIC = "two-partitions"

Row = dict[str, Any]


def rows(*args: object, topics: tuple[str, ...] = (TOPIC,)) -> list[Row]:
    return run_ok("cat", KAFKA_3, *topics, *args, "--format", "jsonl").json_lines


@pytest.fixture(scope="module")
def everything() -> list[Row]:
    return rows()


def by_time(found: list[Row]) -> list[Row]:
    return sorted(found, key=lambda row: (row["timestamp"], row["partition"], row["offset"]))


# --- which records


def test_offsets(everything: list[Row]) -> None:
    assert rows("--offset", 195) == [row for row in everything if row["offset"] >= 195]
    assert rows("--offset", "10:12") == [row for row in everything if 10 <= row["offset"] < 12]
    assert rows("--offset", ":2") == [row for row in everything if row["offset"] < 2]
    assert [(row["partition"], row["offset"]) for row in rows("--offset", "-2")] == [(0, 198), (0, 199), (1, 298), (1, 299)]
    assert rows("--offset", "earliest") == everything
    assert rows("--offset", "latest") == []
    assert rows("--offset", 10**15) == []


def test_offsets_and_times_apply_together(everything: list[Row]) -> None:
    found = rows("--offset", "50:150", "--from", "2020-09-20T12:27")
    assert found == [row for row in everything if 50 <= row["offset"] < 150 and row["timestamp"] >= 1_600_604_820_000]


@pytest.mark.parametrize("text", ["x", "1.5", "5:3", "--1", "", ":-3", "9" * 25, "1:2:3"])
def test_what_is_no_offset_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        parse_offset(text)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(-60, 60), st.integers(0, 60) | st.none())
def test_offsets_stay_within_the_log(start: int, length: int, first: int, end: int | None) -> None:
    option = OffsetOption(last=-first) if first < 0 else OffsetOption(first, end)
    log = Ends(start, start + length, start + length)
    ((low, high),) = option.ranges({TopicPartition("t", 0): log}).values()
    assert start <= low <= high <= start + length
    wanted = range(max(0, (start + length if end is None or first < 0 else min(end, start + length))))
    wanted = wanted[first:] if first < 0 else range(first, len(wanted))
    assert [offset for offset in range(start, start + length) if offset in wanted and offset >= start] == list(range(low, high))


def test_the_first_ones(everything: list[Row]) -> None:
    assert rows("-n", 7) == everything[:7]
    assert rows("-n", 0) == []
    assert rows("-n", 205) == everything[:205]


def test_the_last_ones(everything: list[Row]) -> None:
    per_partition = [[row for row in everything if row["partition"] == number] for number in (0, 1)]
    for count in (0, 1, 5, 250, 10_000):
        assert rows("--tail", count, "-p", 1) == (per_partition[1][-count:] if count else [])
        last = by_time([row for part in per_partition for row in (part[-count:] if count else [])])
        assert rows("--tail", count) == (last[-count:] if count else [])


def test_the_last_ones_of_a_selection_are_looked_for_further_back(everything: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FIRST_WINDOW", 2)
    wanted = [row for row in everything if row["partition"] == 1 and row["key"] == "k7"]
    assert rows("--tail", 4, "--key", "k7", "-p", 1) == wanted[-4:]
    assert rows("--tail", 9999, "--key", "k7", "-p", 1) == wanted
    assert rows("--tail", 3, "--key", "none", "-p", 1) == []


def test_keys_and_expressions(everything: list[Row]) -> None:
    assert rows("--key", "k1") == [row for row in everything if row["key"] == "k1"]
    assert rows("--key", "k1", "--key", "k2") == [row for row in everything if row["key"] in ("k1", "k2")]
    for options, flags in (([], 0), (["-i"], re.IGNORECASE)):
        pattern = re.compile("^K1|C{3}$|ab+a", flags)
        wanted = [row for row in everything if pattern.search(row["key"] or "") or pattern.search(row["value"] or "")]
        assert rows("--grep", pattern.pattern, *options) == wanted
    assert rows("--grep", "ccc", "--key", "k1") == [
        row for row in everything if row["key"] == "k1" and "ccc" in (row["value"] or "")
    ]


def test_a_selection_of_nothing_says_so(everything: list[Row]) -> None:
    for options, hint in (
        (["--key", "k"], "; --key compares whole keys: to find a part of a key, use --grep"),
        (["--key", "k", "--count"], "; --key compares whole keys: to find a part of a key, use --grep"),
        (["--grep", "nowhere"], ""),
    ):
        found = run_ok("cat", KAFKA_3, TOPIC, *options)
        assert found.stderr == f"note: no record matches ({len(everything)} were read){hint}\n"


@pytest.fixture
def partly_filled(tmp_path: Path) -> Path:
    """A topic whose partition 0 has offsets 3 to 5, and whose partition 1 is empty."""
    LogBuilder(tmp_path, 1, topic="orders").close()
    builder = LogBuilder(tmp_path, topic="orders")
    for number in range(6):
        builder.append([(1000 + number, b"k", b"v")])
    builder.close(log_start=3)
    return builder.data_dir


@pytest.mark.parametrize(
    ("options", "notes"),
    [
        (["-p", 0, "--offset", 4], []),
        (["-p", 0, "--offset", 0], []),
        (["-p", 0, "--offset", 1], ["--offset 1 is before the start of orders-0, which starts at 3"]),
        (["-p", 0, "--offset", 6], ["--offset 6 finds nothing in orders-0, which ends at 6", "no record matches (0 were read)"]),
        (
            ["--offset", "7:9", "--count"],
            [
                "--offset 7 finds nothing in orders-0, which ends at 6, orders-1, which ends at 0",
                "no record matches (0 were read)",
            ],
        ),
        (["--offset", 4], ["--offset 4 finds nothing in orders-1, which ends at 0"]),
        (["-p", 1], ["no record matches (0 were read): orders-1 is empty"]),
        (["-p", 1, "--tail", 3], ["no record matches (0 were read): orders-1 is empty"]),
        (["-p", 1, "--where", "true"], ["no record matches (0 were read): orders-1 is empty"]),
        (["--from", 2000], ["no record matches (0 were read); to see the time range of each topic, run tidelog ls"]),
    ],
)
def test_why_there_is_no_record(partly_filled: Path, options: list[object], notes: list[str]) -> None:
    ran = run_ok("cat", partly_filled, "orders", *options, "--format", "jsonl")
    ours = [one.removeprefix("note: ") for one in ran.notes if one.startswith(("note: --offset", "note: no record"))]
    assert ours == notes
    assert bool(ran.json_lines) == (not notes or "--count" in options or notes[0].endswith(("starts at 3", "ends at 0")))


@pytest.mark.parametrize(
    ("more", "stdout"),
    [([], "topic  time  records\n"), (["--format", "csv"], "topic,time,records\n"), (["--json"], ""), (["--key", "x"], None)],
)
def test_a_histogram_of_nothing(partly_filled: Path, more: list[str], stdout: str | None) -> None:
    ran = run_ok("cat", partly_filled, "orders", "-p", 1, "--count", "--every", "1m", *more)
    assert stdout is None or ran.stdout == stdout
    assert "no record matches (0 were read): orders-1 is empty" in ran.stderr


def test_many_partitions_without_a_record_are_one_note(tmp_path: Path) -> None:
    for number in range(5):
        LogBuilder(tmp_path, number, topic="orders").close()
    ran = run_ok("cat", tmp_path, "orders")
    assert ran.notes == [
        "note: no record matches (0 were read): orders-0 is empty, orders-1 is empty, orders-2 is empty, and 2 more partitions"
    ]


def test_a_time_in_two_arguments_is_no_topic() -> None:
    ran = run("cat", KAFKA_3, TOPIC, "--from", "2026-11-19", "09:00")
    assert ran.exit_code == 1
    assert "no topic '09:00': a time that contains a space needs quotes" in ran.error


def test_an_empty_time_range_on_a_terminal_says_where_the_times_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.cli.commands.cat.stdout_is_terminal", lambda: True)
    found = run_ok("cat", KAFKA_3, TOPIC, "--from", "2030-01-01")
    assert found.stderr.endswith("note: no record matches (0 were read); to see the time range of each topic, run tidelog ls\n")


def test_headers(everything: list[Row]) -> None:
    assert rows("--header", "h0") == [row for row in everything if any(name == "h0" for name, _ in row["headers"])]
    assert rows("--header", "h0=xxxx") == [row for row in everything if ["h0", "xxxx"] in row["headers"]]
    assert rows("--header", "h0=xxxx", "--header", "h1") == [
        row for row in everything if ["h0", "xxxx"] in row["headers"] or any(name == "h1" for name, _ in row["headers"])
    ]
    assert rows("--header", "nope") == []


def test_where(everything: list[Row]) -> None:
    assert rows("--where", "offset < 5 and partition = 1") == [
        row for row in everything if row["offset"] < 5 and row["partition"] == 1
    ]
    assert rows("--where", "key is null") == [row for row in everything if row["key"] is None]
    assert rows("--where", "headers['h0'] = 'xxxx'") == [row for row in everything if dict(row["headers"]).get("h0") == "xxxx"]
    assert rows("--where", "timestamp < '2020-09-20 12:27:00+00'") == [
        row for row in everything if row["timestamp"] < 1_600_604_820_000
    ]
    # Nothing here is JSON: no record passes, and none ends it.
    assert rows("--where", "value->>'$.carrier' = 'UA'") == []
    assert rows("--where", "value like '%''offset''%' or \"offset\" = 3") == [row for row in everything if row["offset"] == 3]


def test_where_reads_json_beside_what_is_none(tmp_path: Any) -> None:
    with tidelog.Broker(tmp_path) as broker:
        broker.create_topic("orders")
        values = [b'{"carrier":"UA","n":1}', b"not json", b"\xff\xfe", None, b'{"carrier":"B6"}', b'{"carrier":"UA"}']
        for value in values:
            broker.produce("orders", value)
    found = run_ok("cat", tmp_path, "orders", "--where", "value->>'$.carrier' = 'UA'", "--format", "jsonl").json_lines
    assert [row["offset"] for row in found] == [0, 5]


@pytest.mark.parametrize(
    "expression", ["nope = 1", "offset <", "1; drop table batch", "sum(partition) > 1", ")", "(select 1) = 1"]
)
def test_an_expression_that_is_none_is_one_error(expression: str) -> None:
    ran = run("cat", KAFKA_3, TOPIC, "--where", expression)
    assert ran.exit_code == 2
    assert ran.error.startswith("tidelog: --where: ")


def test_an_expression_reads_no_files() -> None:
    ran = run("cat", KAFKA_3, TOPIC, "--where", "exists(select * from read_text('/etc/passwd'))")
    assert ran.exit_code == 2
    assert ran.stdout == ""


# --- several topics


def test_several_topics_and_patterns(everything: list[Row]) -> None:
    others = rows(topics=("transactions",))
    assert rows(topics=(TOPIC, "transactions")) == everything + others
    assert rows(topics=("trans*", TOPIC, TOPIC)) == others + everything
    assert rows("-n", 3, topics=("^t.*s$",)) == others[:3]
    text = run_ok("cat", KAFKA_3, TOPIC, "transactions", "--offset", ":1", "-p", 0)
    assert [line.split()[0] for line in text.lines] == [TOPIC, "transactions"]
    assert run("cat", KAFKA_3, "nope*").error == f"tidelog: no topic matches 'nope*' ({KAFKA_3})"
    assert "not a regular expression" in run("cat", KAFKA_3, "^(").error


# --- order and counts


def test_the_order_of_time(everything: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = by_time(everything)
    assert rows("--sort", "time") == wanted
    assert rows("--sort", "time", "-n", 5) == wanted[:5]
    monkeypatch.setattr(sorting, "RUN_BYTES", 1 << 12)
    monkeypatch.setattr(sorting, "BLOCK_BYTES", 1 << 9)
    monkeypatch.setattr(sorting, "FAN_IN", 2)
    assert rows("--sort", "time") == wanted


def test_times_that_only_milliseconds_can_express_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidelog.sources.schema import scan_schema

    def batch(*times: int | None) -> pa.RecordBatch:
        lines = [
            {
                "topic": "t",
                "partition": 0,
                "offset": n,
                "timestamp": None,
                "timestamp_type": 0,
                "key": b"",
                "value": b"",
                "headers": [],
            }
            for n in range(len(times))
        ]
        made = pa.RecordBatch.from_pylist(lines, scan_schema())
        columns = made.columns
        columns[3] = pa.array(times, pa.int64()).cast(columns[3].type)
        return pa.RecordBatch.from_arrays(columns, schema=made.schema)

    wanted = [None, 0, 5, 2**63 - 1]
    for limit in (1 << 20, 0):
        monkeypatch.setattr(sorting, "RUN_BYTES", limit)
        found = pa.Table.from_batches(list(sorting.sorted_by_time([batch(2**63 - 1, None), batch(5, 0)])))
        assert found.column("timestamp").cast(pa.int64()).to_pylist() == wanted


def test_counts(everything: list[Row]) -> None:
    assert run_ok("cat", KAFKA_3, TOPIC, "--count").lines[1].split() == [TOPIC, str(len(everything))]
    assert rows("--count", topics=(TOPIC, "empty")) == [{"topic": TOPIC, "records": 500}, {"topic": "empty", "records": 0}]
    assert rows("--count", "--key", "k1") == [{"topic": TOPIC, "records": sum(row["key"] == "k1" for row in everything)}]
    for span, every_ms in (("1s", 1000), ("1m", 60_000)):
        counts = Counter(row["timestamp"] // every_ms * every_ms for row in everything)
        first, last = min(counts), max(counts)
        found = rows("--count", "--every", span)
        assert [row["records"] for row in found] == [counts[at] for at in range(first, last + 1, every_ms)]
        assert found[0]["time"] == format_time(first)


def test_intervals_are_those_of_the_zone() -> None:
    found = rows("--count", "--every", "1d", "--tz", "Asia/Kolkata")
    assert found == [{"topic": TOPIC, "time": "2020-09-20T00:00:00.000 Asia/Kolkata", "records": 500}]
    (utc,) = rows("--count", "--every", "1d")
    assert utc["time"] == "2020-09-20T00:00:00.000Z"


def test_a_bound_on_lateness_is_an_assumption_that_is_stated(everything: list[Row]) -> None:
    window = ["--from", "2020-09-20T12:27", "--to", "+1s"]
    exact = rows(*window)
    assert rows(*window, "--max-lateness", "1h") == [{**row, "assumed_max_lateness_ms": 3_600_000} for row in exact]
    ran = run_ok("cat", KAFKA_3, TOPIC, *window, "--max-lateness", "1s", "--format", "jsonl")
    assert any("were not read because of --max-lateness" in note for note in ran.notes)
    assert any("assuming that no record is later than 1s" in note for note in ran.notes)
    found = ran.json_lines
    assert {row.pop("assumed_max_lateness_ms") for row in found} == {1000}
    assert all(row in exact for row in found)
    # Up to the first record that is later than the assumption allows, it is the exact range.
    ends = {
        number: min(row["offset"] for row in everything if row["partition"] == number and row["timestamp"] >= 1_600_604_822_000)
        for number in (0, 1)
    }
    assert found == [row for row in exact if row["offset"] < ends[row["partition"]]]


def test_every_format_states_the_assumption(tmp_path: Path) -> None:
    asked = (KAFKA_3, TOPIC, "--from", "2020-09-20T12:27", "--to", "+1s", "--max-lateness", "1s")
    (line,) = csv.DictReader(io.StringIO(run_ok("cat", *asked, "--count", "--format", "csv").stdout, newline=""))
    assert line["assumed_max_lateness_ms"] == "1000"
    assert run_ok("cat", *asked, "--count", "--json").json_lines[0]["assumed_max_lateness_ms"] == 1000
    records = list(csv.DictReader(io.StringIO(run_ok("cat", *asked, "--format", "csv").stdout, newline="")))
    assert {line["assumed_max_lateness_ms"] for line in records} == {"1000"}
    for name in ("out.parquet", "out.arrow"):
        run_ok("cat", *asked, "-o", tmp_path / name)
    metadata = pq.read_schema(tmp_path / "out.parquet").metadata
    assert pa.ipc.open_file(tmp_path / "out.arrow").schema.metadata == metadata
    assert metadata[b"tidelog.assumed_max_lateness_ms"] == b"1000"
    assert (metadata[b"tidelog.from_ms"], metadata[b"tidelog.to_ms"]) == (b"1600604820000", b"1600604821000")
    assert json.loads(metadata[b"tidelog.topics"]) == [TOPIC]
    not_read = json.loads(metadata[b"tidelog.not_read"])
    assert not_read.keys() == {f"{TOPIC}-0", f"{TOPIC}-1"}
    run_ok("cat", KAFKA_3, TOPIC, "-o", tmp_path / "all.parquet")
    assert not [name for name in pq.read_schema(tmp_path / "all.parquet").metadata if b"assumed" in name or b"_ms" in name]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], ["reading 22.4 GiB, 10m or more"]),
        (["-o", "/dev/null", "--format", "arrow"], ["reading 22.4 GiB, 1m 20s or more"]),
        (["--grep", "x"], ["reading 22.4 GiB, 1m 20s or more"]),
        (["-n", 1, "--sort", "time"], ["reading 22.4 GiB, 10m or more"]),
        (["-n", 1], []),
        (["--tail", 1], []),
        (["--to", "2020-09-20T12:27:30", "--max-lateness", "1s"], ["reading 22.4 GiB, 10m or more"]),
        (
            ["--to", "2020-09-20T12:27:30"],
            [
                "reading 22.4 GiB, 10m or more; late records may be anywhere after the start: to read less, limit how late "
                "they may be, e.g. --max-lateness 10m"
            ],
        ),
    ],
)
def test_a_large_read_is_announced(options: list[object], said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScanPlan, "size_bytes", property(lambda self: 24 * 10**9))
    ran = run_ok("cat", KAFKA_3, TOPIC, *options)
    assert [line for line in ran.stderr.splitlines() if line.startswith("reading ")] == said


# --- formats


def test_csv(everything: list[Row]) -> None:
    found = list(csv.DictReader(io.StringIO(run_ok("cat", KAFKA_3, TOPIC, "--format", "csv").stdout, newline="")))
    assert len(found) == len(everything)
    for line, row in zip(found, everything, strict=True):
        assert (line["topic"], int(line["partition"]), int(line["offset"])) == (TOPIC, row["partition"], row["offset"])
        assert (line["key"] or None, line["value"] or None) == (row["key"] or None, row["value"] or None)
        assert (json.loads(line["headers"]) if line["headers"] else []) == row["headers"]
        assert line["time"] == format_time(row["timestamp"])


def test_a_format_in_kcats_letters(everything: list[Row]) -> None:
    ran = run_ok("cat", KAFKA_3, TOPIC, "-n", 30, "-f", r"%t/%p/%o %T %K:%S %%\t%k|%h\n")
    for line, row in zip(ran.stdout.split("\n"), everything[:30], strict=False):
        key = row["key"] or ""
        headers = ",".join(f"{name}={'NULL' if value is None else value}" for name, value in row["headers"])
        lengths = [-1 if text is None else len(text) for text in (row["key"], row["value"])]
        place = f"{TOPIC}/{row['partition']}/{row['offset']}"
        assert line == f"{place} {row['timestamp']} {lengths[0]}:{lengths[1]} %\t{key}|{headers}"
    framed = run_ok("cat", KAFKA_3, TOPIC, "-n", 2, "-f", r"%R%s\x00").stdout_bytes
    assert framed == b"".join(
        len(value).to_bytes(4, "big") + value + b"\0" for value in (row["value"].encode() for row in everything[:2])
    )


@pytest.mark.parametrize("text", ["%x", "%", "\\", r"\q", r"\x1"])
def test_what_a_format_does_not_know_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="unknown placeholder"):
        parse_format(text)


@given(st.text(st.characters(exclude_characters="%\\", exclude_categories=["Cs"])))
def test_plain_text_in_a_format_stays(text: str) -> None:
    assert b"".join(part(None) for part in parse_format(text)) == text.encode()  # type: ignore[arg-type]


# --- contradictions


@pytest.mark.parametrize(
    "options",
    [
        ["-n", 1, "--tail", 1],
        ["--count", "-n", 1],
        ["--every", "1m"],
        ["--count", "--every", "0s"],
        ["--count", "--every", "soon"],
        ["--count", "--format", "parquet"],
        ["--follow", "--to", "now"],
        ["--follow", "--offset", "1:5"],
        ["--follow", "--sort", "time"],
        ["--follow", "--format", "arrow"],
        ["--follow", "-o", "x.jsonl"],
        ["--max-lateness", "1m"],
        ["-f", "%s", "--format", "csv"],
        ["--json", "--format", "csv"],
        ["-n", -1],
        ["--tail", "many"],
    ],
)
def test_options_that_contradict_each_other(options: list[object]) -> None:
    ran = run("cat", KAFKA_3, TOPIC, *options)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.error


# --- following


@pytest.mark.parametrize("is_folder", [True, False])
def test_records_that_arrive_are_followed(tmp_path: Any, is_folder: bool) -> None:
    with tidelog.Broker(tmp_path) as broker:
        broker.create_topic("orders", partitions=2)
        for n in range(3):
            broker.produce("orders", b"old %d" % n, partition=0)
        place = tmp_path if is_folder else broker.bootstrap_servers
        with start("cat", place, "orders", "--follow", "--offset", "-1", "-n", 4, "--format", "jsonl") as process:
            assert process.stdout is not None
            lines: Iterator[bytes] = iter(process.stdout.readline, b"")
            assert json.loads(next(lines))["value"] == "old 2"
            for n in range(3):
                broker.produce("orders", b"new %d" % n, partition=n % 2)
                assert json.loads(next(lines))["value"] == f"new {n}"
            assert process.wait(PATIENCE_S) == 0


def test_records_are_followed_from_an_offset_that_does_not_exist_yet(tmp_path: Path) -> None:
    with tidelog.Broker(tmp_path) as broker:
        broker.create_topic("orders")
        broker.produce("orders", b"0")
        with start("cat", broker.bootstrap_servers, "orders", "--follow", "--offset", 3, "-n", 1, "--format", "jsonl") as process:
            for n in range(1, 4):
                broker.produce("orders", b"%d" % n)
            stdout, stderr = process.communicate(timeout=PATIENCE_S)
        assert json.loads(stdout)["offset"] == 3
        assert b"no record matches" not in stderr
