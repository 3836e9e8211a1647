"""The studies' job: each case once, in a folder of its own that is gone afterwards; rows and chapters of what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from studies.case import SCHEMA, run_all
from studies.catalogue import STUDIES
from studies.chapter import Chapter, Table
from studies.job import run, run_studies
from tests.studies.fake_study import fake_study
from tidelog.errors import InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.jobs.result import JobResult

CASES = 6


@pytest.fixture(scope="module")
def heard() -> list[tuple[int, int]]:
    return []


@pytest.fixture(scope="module")
def ran(spark: SparkSession, heard: list[tuple[int, int]]) -> tuple[JobResult, list[Chapter]]:
    def progress(done: int, total: int) -> None:
        heard.append((done, total))

    return run(spark, [fake_study("one", CASES), fake_study("two", 1)], 2.0, progress)


def test_rows_are_what_the_cases_measure(spark: SparkSession, ran: tuple[JobResult, list[Chapter]], tmp_path: Path) -> None:
    rows = ran[0].rows
    assert rows.schema == spark.createDataFrame([], SCHEMA).schema
    found = [tuple(row) for row in rows.where("metric != 'folder'").collect()]
    expected = []
    for name, cases in (("one", CASES), ("two", 1)):
        (tmp_path / name).mkdir()
        expected += [(name, *one) for one in run_all(fake_study(name, cases), 2.0, tmp_path / name) if one.metric != "folder"]
    assert found == expected and len(found) == 2 * (CASES + 1)


def test_each_case_has_a_folder_that_is_gone_afterwards(ran: tuple[JobResult, list[Chapter]]) -> None:
    folders = [row.text for row in ran[0].rows.where("metric = 'folder'").collect()]
    assert len(set(folders)) == CASES + 1
    assert not any(Path(folder).exists() for folder in folders)


def test_chapters_and_summary(ran: tuple[JobResult, list[Chapter]], heard: list[tuple[int, int]]) -> None:
    result, chapters = ran
    assert [chapter.name for chapter in chapters] == ["one", "two"]
    (table,) = chapters[0].parts
    assert isinstance(table, Table) and [row[1] for row in table.rows] == [2.0 * n for n in range(CASES)]
    rows = [dict(zip(result.summary.columns, row, strict=True)) for row in result.summary.rows]
    assert all(0 <= row.pop("seconds") < 300 for row in rows)
    nothing = {"in part": 0, "not measurable": 0}
    assert rows == [
        {"study": "one", "cases": 6, "measurements": 18, "confirmed": 5, "refuted": 1, **nothing},
        {"study": "two", "cases": 1, "measurements": 3, "confirmed": 0, "refuted": 1, **nothing},
    ]
    assert result.faults == 0
    assert heard[-1] == (CASES + 1, CASES + 1)


def test_what_the_engine_warns_of_in_a_study_is_not_told(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    run(spark, [fake_study("one", 1)])
    assert [record for record in caplog.records if record.name.startswith("tidelog")] == []


def test_an_error_in_a_case_is_the_jobs(spark: SparkSession) -> None:
    with pytest.raises(NotFoundError, match="no case 3"):
        run(spark, [fake_study("one", CASES, failing=3)])


@pytest.mark.parametrize("scale", [0, -1, float("nan")])
def test_a_scale_is_above_zero(spark: SparkSession, scale: float) -> None:
    with pytest.raises(InvalidArgumentError, match="scale"):
        run(spark, [fake_study("one", 1)], scale)


def test_a_study_that_does_not_exist(spark: SparkSession) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        run_studies(spark, ["which-clock"])
    assert all(name in str(error.value) for name in STUDIES)
