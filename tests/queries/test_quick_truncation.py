"""`date_trunc` in UTC: the macro answers as DuckDB's function, and never takes a time range from a scan."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.queries.logs import write_topics
from tidelog.queries.session import Session

UNITS = ["microseconds", "millisecond", "second", "minute", "hour", "day", "dow", "week", "julian", "nothing"]
PARTS = [*UNITS, "month", "quarter", "year", "isoyear", "decade", "century", "millennium"]
LARGEST_US = 2**63 - 2

moments = st.one_of(
    st.integers(-LARGEST_US, LARGEST_US).map("make_timestamptz({})".format),
    st.integers(-(10**17), 10**17).map("make_timestamptz({})".format),
    st.integers(0, 2 * 10**15).map("make_timestamp({})".format),
    st.sampled_from(["TIMESTAMPTZ 'infinity'", "TIMESTAMPTZ '-infinity'", "TIMESTAMP 'infinity'", "NULL::TIMESTAMPTZ"]),
    st.sampled_from(["DATE '2013-07-10'", "INTERVAL '40 days 1 hour'", "TIMESTAMP_NS '2013-07-10 01:02:03.5'", "'text'", "1"]),
)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("truncated")
    write_topics(folder, 1)
    with Session(folder, tz="UTC") as session:
        yield session


def is_quick(session: Session, query: str) -> bool:
    """Execute a query, and return whether it found the macro."""
    (statement,) = session.statements(query)
    relation = session.relation(statement)
    assert relation is not None
    relation.fetchall()
    ((path,),) = session.connection.sql("SELECT current_setting('search_path')").fetchall()
    return "quick" in path


@examples(500)
@given(part=st.sampled_from(PARTS), moment=moments)
def test_the_macro_answers_as_the_function(session: Session, part: str, moment: str) -> None:
    assert is_quick(session, "SELECT date_trunc('hour', timestamp) FROM orders")

    def answer(function: str) -> object:
        try:
            # The argument is a column, because DuckDB computes a constant in another way.
            column = f"FROM (SELECT {moment} AS t FROM range(3)) WHERE random() >= 0"
            return session.connection.sql(
                f"SELECT {function}('{part}', t)::VARCHAR, typeof({function}('{part}', t)) {column}"
            ).fetchall()
        except duckdb.Error:
            return "error"

    assert answer("date_trunc") == answer("quick.date_trunc") == answer("system.main.date_trunc")


@pytest.mark.parametrize(
    ("query", "quick"),
    [
        ("SELECT date_trunc('minute', timestamp) AS m, count(*) FROM orders WHERE timestamp >= '2013-07-10' GROUP BY 1", True),
        ("SELECT date_trunc('day', timestamp) FROM orders WHERE date_trunc('hour', timestamp) = '2013-07-10 14:00Z'", False),
        ("WITH x AS (SELECT * FROM orders WHERE date_trunc('hour', timestamp) = '2013-07-10 14:00Z') SELECT key FROM x", False),
        ("SELECT date_trunc('hour', o.timestamp) FROM orders o JOIN orders p USING (key) WHERE p.timestamp > '2013-07-10'", True),
    ],
)
def test_a_condition_on_date_trunc_still_limits_the_scan(session: Session, query: str, quick: bool) -> None:
    assert is_quick(session, query) is quick
    in_utc = [one.bounds for one in session.scans]

    with Session(session.reader.address, tz="Etc/GMT") as other:
        assert not is_quick(other, query)
        assert [one.bounds for one in other.scans] == in_utc
    assert any(one.time.is_bounded for one in in_utc)
