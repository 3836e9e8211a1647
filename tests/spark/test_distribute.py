"""Tasks on workers: their rows, their errors whole, what they say, how they are bundled."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reader.golden import GOLDEN
from tidelog import errors
from tidelog.errors import CorruptIndexError, RecordError, TidelogError, UnexpectedAppendOffsetError
from tidelog.reader.log import Log
from tidelog.spark.jobs.bundles import TASK_BYTES, TASK_PIECES, bundle
from tidelog.spark.jobs.distribute import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACE: dict[str, Any] = {"path": "/data/t-0/0.index", "position": 0, "found": b"\x00", "expected": ("an entry", 3)}


def error_classes() -> Iterator[type[TidelogError]]:
    """Those that a task can raise. What a broker has for itself is another module's, and here or not as tests import it."""
    for _, cls in sorted(vars(errors).items()):
        if isinstance(cls, type) and issubclass(cls, TidelogError):
            yield cls


@pytest.mark.parametrize("cls", list(error_classes()), ids=lambda cls: cls.__name__)
def test_every_error_survives_pickling(cls: type[TidelogError]) -> None:
    error = cls("what went wrong", **PLACE)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert vars(again) == vars(error)
    assert str(again) == str(error)


def test_errors_with_more_to_tell_survive_too() -> None:
    for error in (
        errors.RecordValidationError("two", record_errors=[RecordError(3, "no key")], **PLACE),
        UnexpectedAppendOffsetError("low", first_offset=3, last_offset=9, **PLACE),
    ):
        assert vars(pickle.loads(pickle.dumps(error))) == vars(error)


def test_a_workers_error_arrives_whole(spark: SparkSession) -> None:
    def work(task: int) -> list[tuple[int]]:
        if task in (2, 3):
            raise CorruptIndexError(f"task {task}", **PLACE)
        return [(task,)]

    with pytest.raises(CorruptIndexError) as caught:
        run_tasks(spark, "test", list(range(5)), work)
    assert caught.value.message == "task 2"
    assert {name: getattr(caught.value, name) for name in PLACE} == PLACE
    assert caught.value.__cause__ is None


def test_rows_in_order_and_what_workers_say(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    def work(task: int) -> Iterator[tuple[int, int]]:
        logging.getLogger("tidelog.log").warning("task %d", task)
        logging.getLogger("tidelog.log").info("nobody needs this")
        yield from ((task, n) for n in range(task))

    assert run_tasks(spark, "test", [3, 0, 2], work) == [(3, 0), (3, 1), (3, 2), (2, 0), (2, 1)]
    assert [(one.name, one.getMessage()) for one in caplog.records if one.name == "tidelog.log"] == [
        ("tidelog.log", f"task {task}") for task in (3, 0, 2)
    ]
    assert run_tasks(spark, "test", [], work) == []


def test_a_segment_goes_to_another_process_as_it_was_listed() -> None:
    log = Log.open(GOLDEN / "kafka-3.9.1" / "log" / "two-partitions-0")
    for segment in log.segments:
        segment.valid_end()
        again = pickle.loads(pickle.dumps(segment))
        assert (again.base_offset, again.next_base_offset, again.size_bytes) == (
            segment.base_offset,
            segment.next_base_offset,
            segment.size_bytes,
        )
        assert again.file.identity == segment.identity
        assert again.bytes_read == 0
        assert again.valid_end() == segment.valid_end()
        again.close()
    log.close()


@given(sizes=st.lists(st.integers(0, 3 * TASK_BYTES) | st.integers(0, 100)), parallelism=st.integers(1, 8))
def test_bundles_hold_everything_and_the_largest_goes_first(sizes: list[int], parallelism: int) -> None:
    tasks = bundle(sizes, int, parallelism)
    assert [piece for task in tasks for piece in task] == sorted(sizes, reverse=True)
    assert all(task for task in tasks)
    assert all(len(task) == 1 or (sum(task) <= TASK_BYTES and len(task) <= TASK_PIECES) for task in tasks)
    assert len(tasks) >= min(len(sizes), parallelism)
    # Nothing is put together with what would be alone in a fair share.
    share = sum(sizes) / parallelism
    assert all(len(task) == 1 or sum(task) <= share for task in tasks)
