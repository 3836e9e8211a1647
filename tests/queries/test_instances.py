"""Sessions use DuckDB's instances one after the other: nothing of a session is left for the next one."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from tests.patience import PATIENCE_S
from tests.queries.logs import write_topics
from tidelog.errors import TidelogError
from tidelog.queries import instances
from tidelog.queries.results import Results
from tidelog.queries.session import Session

LEFT = {
    "CREATE TABLE mine AS SELECT 1 AS n": "SELECT * FROM mine",
    "CREATE TEMP TABLE temporary AS SELECT 1 AS n": "SELECT * FROM temporary",
    "CREATE VIEW seen AS SELECT * FROM orders": "SELECT * FROM seen",
    "CREATE MACRO twice(n) AS 2 * n": "SELECT twice(1)",
    "CREATE TYPE mood AS ENUM ('ok')": "SELECT 'ok'::mood",
    "CREATE SCHEMA other": "SELECT * FROM other.none",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("instances")
    write_topics(folder, 1)
    return folder


def execute(session: Session, text: str) -> list[tuple[object, ...]] | None:
    (statement,) = session.statements(text)
    relation = session.relation(statement)
    return None if relation is None else relation.fetchall()


def test_what_a_session_makes_ends_with_it(folder: Path) -> None:
    with Session(folder, tz="UTC") as first:
        for made in LEFT:
            execute(first, made)
        execute(first, "SET VARIABLE n = 7")
    used = weakref.ref(first.connection)
    del first
    gc.collect()
    assert used() is None
    with Session(folder, tz="UTC") as second:
        for asked in LEFT.values():
            with pytest.raises(TidelogError):
                execute(second, asked)
        assert execute(second, "SELECT getvariable('n')") == [(None,)]
        names = execute(second, "SELECT DISTINCT table_name FROM information_schema.tables")
        assert names is not None and {"mine", "temporary", "seen"}.isdisjoint(name for (name,) in names)


def test_sessions_that_exist_at_the_same_time_see_nothing_of_each_other(folder: Path) -> None:
    relations = [tidelog.sql(f"SELECT {number}, count(*) FROM orders", folder) for number in range(instances.MOST_IDLE + 2)]
    found = [relation.fetchall()[0] for relation in relations]
    assert [number for number, _ in found] == list(range(len(relations)))
    assert len({count for _, count in found}) == 1
    with Session(folder) as session:
        execute(session, "CREATE VIEW mine AS SELECT 1")
        tables = tidelog.sql("SELECT count(*) FROM information_schema.tables WHERE table_name = 'mine'", folder)
        assert tables.fetchall() == [(0,)]


def test_an_instance_is_used_again_and_few_wait(folder: Path) -> None:
    place = (os.getpid(), "Asia/Tokyo")
    relations = [tidelog.sql("SELECT 1", folder, tz="Asia/Tokyo") for _ in range(instances.MOST_IDLE + 2)]
    assert instances._idle[place] == []
    relations.clear()
    gc.collect()
    waiting = list(instances._idle[place])
    assert len(waiting) == instances.MOST_IDLE
    one = tidelog.sql("SELECT timestamp::VARCHAR FROM orders LIMIT 1", folder, tz="Asia/Tokyo")
    assert len(instances._idle[place]) == instances.MOST_IDLE - 1
    assert str(one.fetchall()[0][0]).endswith("+09")


def test_a_derived_relation_keeps_its_instance(folder: Path) -> None:
    derived = tidelog.sql("SELECT * FROM orders", folder).filter("partition = 0").aggregate("count(*)")
    gc.collect()
    others = [tidelog.sql("SELECT count(*) FROM orders", folder) for _ in range(3)]
    assert derived.fetchall() == tidelog.sql("SELECT count(*) FROM orders WHERE partition = 0", folder).fetchall()
    assert len(others) == 3


def test_an_error_while_reading_does_not_keep_the_instance(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> Iterator[object]:
        raise TidelogError("no disk")
        yield

    monkeypatch.setattr("tidelog.queries.topic_reader.read_topic", fails)

    def failed() -> weakref.ref[object]:
        session = Session(folder)
        with pytest.raises(TidelogError, match="no disk"), Results(session) as results:
            (statement,) = session.statements("SELECT * FROM orders")
            result = results.execute(statement)
            assert result is not None and list(result.batches)
        return weakref.ref(session.connection)

    used = failed()
    gc.collect()
    assert used() is None


def test_a_forked_process_opens_an_instance_of_its_own(folder: Path) -> None:
    text = f"""
import gc, os, tidelog
ask = lambda: tidelog.sql("SELECT count(*) FROM orders", {str(folder)!r}).fetchall()
before = ask()
gc.collect()
child = os.fork()
if not child:
    os._exit(0 if ask() == before else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 and ask() == before
"""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
