"""The headers as a map, compared with DuckDB's functions over the headers as a list."""

from __future__ import annotations

import duckdb
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.queries.logs import HEADERS as BY_DUCKDB
from tidelog.sources.schema import HEADERS
from tidelog.sources.selection.headers_map import headers_map

header = st.fixed_dictionaries(
    {"key": st.sampled_from(["", "a", "b", "ä"]), "value": st.sampled_from([None, b"", b"x", b"\xff"])}
)


@examples(200)
@given(rows=st.lists(st.lists(header, max_size=4), max_size=8), start=st.integers(0, 3))
def test_the_last_header_of_a_name_counts(rows: list[list[dict[str, object]]], start: int) -> None:
    headers = pa.array(rows, HEADERS)[start:]

    made = headers_map(headers)
    made.validate(full=True)

    with duckdb.connect() as connection:
        connection.register("records", pa.table({"headers": headers}))
        wanted = connection.sql(f"SELECT {BY_DUCKDB} AS headers FROM records").fetchall()
    assert [dict(one) for one in made.to_pylist()] == [one for (one,) in wanted]
    names = [[header["key"] for header in row] for row in rows[start:]]
    assert [[name for name, _ in one] for one in made.to_pylist()] == [list(dict.fromkeys(one)) for one in names]
