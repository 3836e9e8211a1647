"""Random queries over random logs: `tidelog.sql` answers as DuckDB does over its own tables, made of full scans.

This is the test that finds wrong pruning: in the tables of the comparison DuckDB applies every predicate itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.queries.logs import in_duckdb, write_topics
from tidelog.queries.session import Session

ZONES = ("Europe/Berlin", "UTC", "Europe/Berlin")
"""The zone of each random log."""

Pair = tuple[Session, duckdb.DuckDBPyConnection]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Pair]]:
    made: list[Pair] = []
    for seed, zone in enumerate(ZONES):
        data_dir: Path = tmp_path_factory.mktemp(f"log{seed}")
        write_topics(data_dir, seed)
        made.append((Session(data_dir, tz=zone), in_duckdb(data_dir, zone)))
    yield made
    for session, connection in made:
        session.close()
        connection.close()


# --- Expressions

moments = st.sampled_from(
    [
        "TIMESTAMPTZ '2013-07-10 12:00:00+00'",
        "TIMESTAMPTZ '2013-07-10 12:10:00.0005+00'",
        "'2013-07-10 14:30:00'",
        "TIMESTAMP '2013-07-10 14:20:00'",
        "DATE '2013-07-10'",
        "DATE '2013-07-11'",
        "TIMESTAMP '2013-07-10 15:00:00.5'",
        "'2013-07-10 14:00:00.001'::TIMESTAMPTZ",
        "to_timestamp(1373457600)",
        "epoch_ms(1373459400000)::TIMESTAMPTZ",
        "TIMESTAMPTZ 'epoch'",
        "TIMESTAMPTZ '1969-12-31 23:59:59+00'",
        "TIMESTAMPTZ 'infinity'",
        "TIMESTAMPTZ '-infinity'",
        "now()",
        "TIMESTAMPTZ '2013-07-10 12:40:00+00' + INTERVAL 7 MINUTE",
        "NULL::TIMESTAMPTZ",
        "moment('2013-07-10 14:45')",
        "moment('2013-07-10T13:00:00Z')",
    ]
)
small = st.integers(-1, 40).map(str)
comparison = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])


def leaf(prefix: str) -> st.SearchStrategy[str]:
    time, offset, partition, key = (f'{prefix}"{name}"' for name in ("timestamp", "offset", "partition", "key"))
    return st.one_of(
        st.builds("{} {} {}".format, st.just(time), comparison, moments),
        st.builds("{} {} {}".format, moments, comparison, st.just(time)),
        st.builds("{} BETWEEN {} AND {}".format, st.just(time), moments, moments),
        st.builds("({} IS NULL OR {} {} {})".format, st.just(time), st.just(time), comparison, moments),
        st.builds("({} AND ({} OR {}))".format, *([st.builds("{} {} {}".format, st.just(time), comparison, moments)] * 3)),
        st.builds("{} NOT BETWEEN {} AND {}".format, st.just(time), moments, moments),
        st.builds("{} {} ({}, {})".format, st.just(time), st.sampled_from(["IN", "NOT IN"]), moments, moments),
        st.builds(
            "date_trunc('{}', {}) {} {}".format, st.sampled_from(["minute", "hour", "day"]), st.just(time), comparison, moments
        ),
        st.builds("{}::DATE {} DATE '2013-07-10'".format, st.just(time), comparison),
        st.builds("{}::TIMESTAMP {} {}".format, st.just(time), comparison, moments),
        st.builds("epoch_ms({}) {} 1373458200000".format, st.just(time), comparison),
        st.builds("{} - INTERVAL 10 MINUTE {} {}".format, st.just(time), comparison, moments),
        st.builds("{} IS {} NULL".format, st.sampled_from([time, key, offset]), st.sampled_from(["", "NOT"])),
        st.builds("{} {} {}".format, st.sampled_from([offset, partition]), comparison, small),
        st.builds("{} BETWEEN {} AND {}".format, st.just(offset), small, small),
        st.builds("{} {} ({}, {}, {})".format, st.just(partition), st.sampled_from(["IN", "NOT IN"]), small, small, small),
        st.builds("{} + 1 {} {}".format, st.sampled_from([offset, partition]), comparison, small),
        st.builds("{} % 3 = {}".format, st.just(offset), small),
        st.builds("{} {} {}.5".format, st.sampled_from([offset, partition]), comparison, small),
        st.builds("{} {} '{}'".format, st.just(key), comparison, st.sampled_from(["a", "b", "", "\\xFF\\x00"])),
        st.builds("{}topic {} '{}'".format, st.just(prefix), comparison, st.sampled_from(["orders", "pay.ments-1", "none"])),
        st.just(f"TRY({prefix}value->>'$.n') = '1'"),
        st.just(f"{prefix}headers['trace'] = 'a'"),
        st.sampled_from(["TRUE", "FALSE", "NULL", "1 = 0"]),
    )


def predicates(prefix: str = "") -> st.SearchStrategy[str]:
    return st.recursive(
        leaf(prefix),
        lambda inner: st.one_of(
            st.builds("({} AND {})".format, inner, inner),
            st.builds("({} OR {})".format, inner, inner),
            st.builds("(NOT {})".format, inner.map("({})".format)),
            st.builds("(CASE WHEN {} THEN {} ELSE {} END)".format, inner, inner, inner),
            st.builds("coalesce({}, {})".format, inner, inner),
            st.builds("(({}) IS {})".format, inner, st.sampled_from(["TRUE", "NOT TRUE", "NULL", "NOT NULL", "FALSE"])),
        ),
        max_leaves=6,
    )


tables = st.sampled_from(["orders", '"pay.ments-1"', "tidelog.records"])
ROW = 'topic, "partition", "offset", "timestamp", key, value, headers'

queries = st.one_of(
    st.builds(f"SELECT {ROW} FROM {{}} WHERE {{}}".format, tables, predicates()),
    st.builds("SELECT count(*) FROM {} WHERE {}".format, tables, predicates()),
    st.builds(
        "SELECT date_trunc('minute', timestamp) AS m, count(*), max(\"offset\") FROM {} WHERE {} "
        "GROUP BY 1 HAVING count(*) > 1".format,
        tables,
        predicates(),
    ),
    st.builds(
        'SELECT a."offset", b."offset" FROM {} a {} JOIN {} b ON a.key = b.key AND {} WHERE {}'.format,
        tables,
        st.sampled_from(["", "LEFT", "FULL"]),
        tables,
        predicates("b."),
        predicates("a."),
    ),
    st.builds(
        'SELECT a."offset" FROM {} a {} JOIN {} b USING (timestamp) WHERE {}'.format,
        tables,
        st.sampled_from(["SEMI", "ANTI"]),
        tables,
        predicates("a."),
    ),
    st.builds(
        "WITH x AS (SELECT * FROM {} WHERE {}), y AS MATERIALIZED (SELECT * FROM x WHERE {}) "
        "SELECT key, timestamp FROM x WHERE {} UNION ALL SELECT key, timestamp FROM y".format,
        tables,
        predicates(),
        predicates(),
        predicates(),
    ),
    st.builds(
        'SELECT "offset", (SELECT count(*) FROM {} p WHERE p.key = a.key AND p.timestamp < a.timestamp AND {}) '
        "FROM {} a WHERE {}".format,
        tables,
        predicates("p."),
        tables,
        predicates("a."),
    ),
    st.builds(
        "SELECT key, value FROM {} WHERE timestamp >= (SELECT max(timestamp) FROM {} WHERE {}) AND {}".format,
        tables,
        tables,
        predicates(),
        predicates(),
    ),
    st.builds(
        "SELECT key FROM {} WHERE {} {} SELECT key FROM {} WHERE {}".format,
        tables,
        predicates(),
        st.sampled_from(["INTERSECT", "EXCEPT", "UNION"]),
        tables,
        predicates(),
    ),
    st.builds('SELECT "timestamp", "partition", "offset" FROM {} WHERE {} ORDER BY ALL LIMIT 3'.format, tables, predicates()),
    st.builds(
        'SELECT "offset", key, value FROM raw.orders WHERE {} AND timestamp_type {} 0'.format,
        st.sampled_from(["key = 'a'::BLOB", "value > 'a'::BLOB", "create_time > '2013-07-10 14:30'", "len(headers) = 2"]),
        comparison,
    ),
)


def rows(relation: Any) -> list[tuple[Any, ...]]:
    # Times as text, because Python's end with the year 9999.
    text = relation.project("COLUMNS(*)::VARCHAR")
    return sorted(text.fetchall(), key=repr)


def outcome(run: Any) -> Any:
    try:
        return rows(run())
    except (duckdb.Error, ValueError):
        return "error"


@examples(300, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, len(ZONES) - 1), query=queries)
def test_a_query_answers_as_over_the_full_scan(pairs: list[Pair], seed: int, query: str) -> None:
    session, connection = pairs[seed]

    (statement,) = session.statements(query)
    there = _without_moments(query)
    wanted = outcome(lambda: connection.sql(there))
    assert outcome(lambda: session.relation(statement)) == wanted, query


def _without_moments(query: str) -> str:
    return query.replace("moment('2013-07-10 14:45')", "TIMESTAMPTZ '2013-07-10 12:45:00+00'").replace(
        "moment('2013-07-10T13:00:00Z')", "TIMESTAMPTZ '2013-07-10 13:00:00+00'"
    )
