"""The job `lookup`: every answer beside that of one search after the other, for all kinds of questions; and what is refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.golden import log_dir
from tidelog.errors import (
    CorruptBatchError,
    InvalidArgumentError,
    NotFoundError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
)
from tidelog.reader.log_dir import LogDir
from tidelog.reader.time_search import find_offset
from tidelog.spark.jobs import lookups
from tidelog.spark.jobs.lookups import look_up
from tidelog.spark.jobs.questions import epoch_ms, read_questions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "id long, topic string, partition int, timestamp {}"


def questions(count: int) -> list[tuple[int, str, int, int]]:
    """Times in, before and after the partitions of all golden topics that have times; some of them more than once."""
    chance = random.Random(1)
    rows = []
    for topic, partitions in LogDir(log_dir()).topics().items():
        for partition in partitions:
            with LogDir(log_dir()).log(topic, partition) as log:
                times = [header.max_timestamp for header in log.headers() if header.max_timestamp >= 0]
            if times:
                low, high = min(times) - 5, max(times) + 5
                rows += [(topic, partition, chance.randint(low, high)) for _ in range(count)]
                rows += [(topic, partition, 0), (topic, partition, 0), (topic, partition, high + 100_000)]
    chance.shuffle(rows)
    return [(number, *row) for number, row in enumerate(rows)]


def test_answers_are_those_of_single_searches(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "QUESTIONS_PER_TASK", 60)
    asked = questions(6)
    heard: list[tuple[int, int]] = []
    result = look_up(
        spark, log_dir(), spark.createDataFrame(asked, COLUMNS.format("long")), lambda *how_far: heard.append(how_far)
    )
    assert result.rows.columns == ["id", "topic", "partition", "timestamp", "offset", "found_timestamp"]
    rows = sorted(tuple(row) for row in result.rows.collect())
    data = LogDir(log_dir())
    expected = []
    for number, topic, partition, time in asked:
        with data.log(topic, partition) as log:
            found = find_offset(log, time)
        answer = (None, None) if found is None else (found.offset, found.timestamp)
        expected.append((number, topic, partition, time, *answer))
    assert rows == expected
    *lines, total = result.summary.rows
    assert [line[:2] for line in lines] == sorted({row[1:3] for row in asked})
    for topic, partition, count, hits, none, *_ in lines:
        mine = [row for row in rows if row[1:3] == (topic, partition)]
        assert (count, none, count - none) == (len(mine), sum(row[4] is None for row in mine), hits)
    assert total[:4] == (None, None, len(asked), sum(line[3] for line in lines))
    assert heard[-1][0] == heard[-1][1] > 0


def test_times_of_all_kinds(spark: SparkSession) -> None:
    """In milliseconds, floored, and UTC without a zone, whatever the session's zone is: it is New York's here."""
    from pyspark.sql import functions as f

    day, noon = 1_373_414_400_000, 1_373_457_600_250
    cases: list[tuple[str, str, int | None]] = [
        ("bigint", "1373457600250", noon),
        ("int", "-7", -7),
        ("timestamp", "2013-07-10T12:00:00.250999Z", noon),
        ("timestamp", "1969-12-31T23:59:59.9999Z", -1),
        ("timestamp_ntz", "2013-07-10T12:00:00.250999", noon),
        ("timestamp_ntz", "1969-12-31T23:59:59.9999", -1),
        ("date", "2013-07-10", day),
        ("string", "1373457600250", noon),
        ("string", "2013-07-10", day),
        ("string", "2013-07-10T00:00", day),
        ("string", " 2013-07-10 12:00:00.25 ", noon),
        ("string", "2013-07-10T12:00:00.250Z", noon),
        ("string", "2013-07-10T14:00:00.25+02:00", noon),
        ("string", "2013-07-10T14:00:00.25+0200", noon),
        ("string", "2013-07-10T02:00+02", day),
        ("string", "2013-07-09 20:00-04:00", day),
        *(
            ("string", text, None)
            for text in ("", "T12:00", "12:00", "yesterday", "2013-07", "2013-13-10", "2013-07-10T25:00", "99999999999999999999")
        ),
    ]
    one = spark.range(1)
    columns = []
    for kind, text, _ in cases:
        value = f.lit(text).cast(kind)
        columns.append(epoch_ms(value, one.select(value).schema[0].dataType))
    assert list(one.select(*columns).first() or ()) == [expected for *_, expected in cases]


def test_questions_from_files(spark: SparkSession, tmp_path: Path) -> None:
    topic, partition, time = questions(1)[0][1:]
    (tmp_path / "q.csv").write_text(
        f"topic,partition,timestamp,id\n{topic},{partition},{time},7\n{topic},{partition},2013-07-10,8\n"
    )
    (tmp_path / "q.jsonl").write_text(f'{{"topic":"{topic}","partition":{partition},"timestamp":{time},"id":7}}\n')
    read_questions(spark, str(tmp_path / "q.csv")).write.parquet(str(tmp_path / "q"))
    rows = [tuple(row) for row in read_questions(spark, str(tmp_path / "q")).orderBy("id").collect()]
    assert rows == [(topic, partition, str(time), "7"), (topic, partition, "2013-07-10", "8")]
    (row,) = read_questions(spark, str(tmp_path / "q.jsonl")).collect()
    assert row.asDict() == {"topic": topic, "partition": partition, "timestamp": time, "id": 7}
    answers = look_up(spark, log_dir(), read_questions(spark, str(tmp_path / "q.csv"))).rows
    assert dict(answers.dtypes)["found_timestamp"] == "timestamp"
    with LogDir(log_dir()).log(topic, partition) as log:
        found = [find_offset(log, target) for target in (time, 1_373_414_400_000)]
    offsets = [
        (row.offset, row.ms) for row in answers.selectExpr("*", "unix_millis(found_timestamp) AS ms").orderBy("id").collect()
    ]
    assert offsets == [(None, None) if one is None else (one.offset, one.timestamp) for one in found]
    (tmp_path / "notes.txt").write_text("no table")
    for name, error in (("nothing.csv", NotFoundError), ("notes.txt", InvalidArgumentError)):
        with pytest.raises(error):
            read_questions(spark, str(tmp_path / name))


def test_what_is_no_question(spark: SparkSession) -> None:
    topic, partition = questions(1)[0][1:3]

    def ask(kind: str, *rows: tuple[Any, ...], columns: str = COLUMNS) -> None:
        look_up(spark, log_dir(), spark.createDataFrame(rows, columns.format(kind)))

    with pytest.raises(UnknownTopicOrPartitionError, match="no topic 'nowhere'"):
        ask("long", (1, topic, partition, 5), (2, "nowhere", 0, 5))
    with pytest.raises(UnknownTopicOrPartitionError, match="no partition 77"):
        ask("long", (1, topic, 77, 5))
    with pytest.raises(InvalidArgumentError, match=r"have a null topic or partition.*1"):
        ask("long", (1, topic, None, 5))
    with pytest.raises(
        InvalidArgumentError, match=rf"have a timestamp that is null or before 1970.*3, such as null for {topic}-{partition}"
    ):
        ask("long", (1, topic, partition, None), (2, topic, partition, -7), (3, topic, partition, -1), (4, topic, partition, 3))
    with pytest.raises(InvalidArgumentError, match="such as yesterday"):
        ask("string", (1, topic, partition, "yesterday"), (2, topic, partition, "2013-01-01"))
    with pytest.raises(InvalidArgumentError, match="lack the column 'topic'"):
        ask("long", (1, 5), columns="id long, timestamp long")
    with pytest.raises(InvalidArgumentError, match="has the wrong type"):
        ask("double", (1, topic, partition, 5.0))
    with pytest.raises(InvalidArgumentError, match="already have a column 'offset'"):
        ask("long", (1, topic, partition, 5), columns="offset long, topic string, partition int, timestamp {}")


def test_errors_of_workers_arrive_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    from tests.reader.build import LogBuilder, batch

    LogBuilder(tmp_path / "old-0").append(batch(0, [-1], magic=0)).close()
    damaged = LogBuilder(tmp_path / "bad-0").append(batch(0, [1000]), batch(1, [2000])).roll().append(batch(2, [3000])).close()
    path = damaged.file(0, ".log")
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    for topic, expected in (("old", UnsupportedForMessageFormatError), ("bad", CorruptBatchError)):
        rows = spark.createDataFrame([(topic, 0, 1500)], "topic string, partition int, timestamp long")
        with pytest.raises(expected):
            look_up(spark, str(tmp_path), rows)


def test_no_questions(spark: SparkSession) -> None:
    result = look_up(spark, log_dir(), spark.createDataFrame([], COLUMNS.format("long")))
    assert result.rows.collect() == []
    assert [row[:5] for row in result.summary.rows] == [(None, None, 0, 0, 0)]
