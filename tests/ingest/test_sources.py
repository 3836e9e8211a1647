"""Parquet, CSV and JSON Lines as streams of columns: types that do not damage, rows in order, errors that say where."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tidelog.errors import CorruptDataError, InvalidArgumentError, StorageError, TidelogError
from tidelog.ingest import csv_source, json_lines_source
from tidelog.ingest.formats import format_of, open_source
from tidelog.ingest.json_rows import encode_rows
from tidelog.ingest.source import Wanted, slices

T = Wanted("t")


def save(directory: Path, name: str, content: str | bytes) -> Path:
    path = directory / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(path: Path, wanted: Wanted = T, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for part in open_source(path, wanted, **options).rows():
        assert part.first_row == len(found) + 1
        found += part.columns.to_pylist()
    return found


def json_texts(path: Path, wanted: Wanted = T, **options: Any) -> list[str]:
    found: list[str] = []
    for part in open_source(path, wanted, **options).rows():
        found += (encode_rows(part.columns) if part.texts is None else part.texts).to_pylist()
    return found


def types(path: Path, **options: Any) -> dict[str, str]:
    (part, *_) = open_source(path, T, **options).rows()
    return {field.name: str(field.type) for field in part.columns.schema}


# --- CSV ---


def test_csv_types_fit_all_rows_not_just_the_first_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_source, "_BLOCK_BYTES", 256)
    head = "1,1,1,,,2013-01-01,2013-01-01 00:00:00,true,2013-01-01T00:00:00Z\n" * 200
    tail = '2,x,1.5,7,"a,\n""b""",2013-01-02 10:00:00,2013-01-01 00:00:00.5,2,2013-01-01T00:00:00.25Z\n'
    path = save(tmp_path, "a.csv", "t,int_text,int_float,null_int,null_text,date_time,fine,bool_int,zoned\n" + head + tail)
    assert types(path) == {
        "t": "int64",
        "int_text": "string",
        "int_float": "double",
        "null_int": "int64",
        "null_text": "string",
        "date_time": "timestamp[s]",
        "fine": "timestamp[ns]",
        "bool_int": "string",
        "zoned": "timestamp[ns, tz=UTC]",
    }
    assert json_texts(path)[-1] == (
        '{"t":2,"int_text":"x","int_float":1.5,"null_int":7,"null_text":"a,\\n\\"b\\"","date_time":"2013-01-02T10:00:00",'
        '"fine":"2013-01-01T00:00:00.500000000","bool_int":"2","zoned":"2013-01-01T00:00:00.250000000Z"}'
    )
    assert len(rows(path)) == 201


def test_csv_numbers_keep_their_digits(tmp_path: Path) -> None:
    path = save(tmp_path, "a.csv", "t,zip,phone,id,price,n\n1,01234,+49123,18446744073709551615,1.10,-5\n2,99999,5,3,2,6\n")
    assert json_texts(path) == [
        '{"t":1,"zip":"01234","phone":"+49123","id":"18446744073709551615","price":1.1,"n":-5}',
        '{"t":2,"zip":"99999","phone":"5","id":"3","price":2.0,"n":6}',
    ]


def test_csv_nulls(tmp_path: Path) -> None:
    path = save(tmp_path, "a.csv", "t,n,s\n1,NA,NA\n2,,\n3,5,x\n")
    assert rows(path) == [{"t": 1, "n": None, "s": "NA"}, {"t": 2, "n": None, "s": ""}, {"t": 3, "n": 5, "s": "x"}]


def test_csv_nan_is_a_number_and_not_nothing(tmp_path: Path) -> None:
    path = save(tmp_path, "a.csv", "t,n,i,d\n1,nan,1,2013-07-10\n2,1.5,NaN,nan\n3,-inf,,2013-07-11\n")
    assert json_texts(path) == [
        '{"t":1,"n":"NaN","i":1.0,"d":"2013-07-10"}',
        '{"t":2,"n":1.5,"i":"NaN","d":"nan"}',
        '{"t":3,"n":"-Infinity","i":null,"d":"2013-07-11"}',
    ]


def test_csv_as_text(tmp_path: Path) -> None:
    path = save(tmp_path, "a.csv", "t,n\n1,1.50\n")
    assert rows(path, as_text=True) == [{"t": "1", "n": "1.50"}]


def test_csv_delimiters_and_endings(tmp_path: Path) -> None:
    expected = [{"t": 1, "a": "x"}]
    assert rows(save(tmp_path, "a.tsv", "t\ta\n1\tx\n")) == expected
    assert rows(save(tmp_path, "a.csv", "t;a\n1;x\n"), delimiter=";") == expected
    assert rows(save(tmp_path, "a.csv.gz", gzip.compress(b"t,a\n1,x\n"))) == expected
    assert rows(save(tmp_path, "a.tsv.gz", gzip.compress(b"t\ta\n1\tx\n"))) == expected
    assert rows(save(tmp_path, "a.csv.zst", pa.compress(b"t,a\n1,x\n", codec="zstd", asbytes=True))) == expected
    assert rows(save(tmp_path, "data", "t,a\n1,x"), file_format="csv") == expected
    with pytest.raises(InvalidArgumentError):
        rows(save(tmp_path, "a.csv", "t,a\n"), delimiter="::")
    with pytest.raises(InvalidArgumentError):
        rows(save(tmp_path, "a.jsonl", "{}"), delimiter=";")


def test_csv_row_longer_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_source, "_BLOCK_BYTES", 64)
    long = "x" * 10_000
    path = save(tmp_path, "a.csv", f"t,{long}\n1,a\n2,{long}\n3,b\n")
    assert [row[long] for row in rows(path)] == ["a", long, "b"]


def test_csv_only_wanted_columns_are_read(tmp_path: Path) -> None:
    path = save(tmp_path, "a.csv", "t,k,v,other\n1,2,x,y\n")
    assert rows(path, Wanted("t", "k", "v")) == [{"t": 1, "k": 2, "v": "x"}]
    assert rows(path, Wanted("t", "t", "t")) == [{"t": 1}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "Empty CSV"),
        ("t,a\n1,2\n2\n", "Expected 2 columns"),
        (b"t,a\n1,\xff\n", "'a' has text that is not UTF-8"),
        ("x,a\n1,2\n", "there is no column 't'"),
        ("t,t\n1,2\n", "2 columns are named 't'"),
    ],
)
def test_csv_errors(content: str | bytes, message: str, tmp_path: Path) -> None:
    path = save(tmp_path, "a.csv", content)
    with pytest.raises(TidelogError, match=message) as error:
        rows(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("wanted", [T, Wanted("t", None, "t")])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_csv_quote_never_closed(name: str, wanted: Wanted, tmp_path: Path) -> None:
    """It would swallow all lines after it into one value, and nobody would miss them."""
    for text in ('t,v\n1,a\n2,"b\n3,c\n', 't,v\n1,1\n2,"2\n3,3\n', 't,"v\n1,a\n'):
        path = save(tmp_path, name, gzip.compress(text.encode()) if name.endswith(".gz") else text)
        with pytest.raises(TidelogError, match=r"a quote is never closed|Empty CSV file or block"):
            rows(path, wanted)
    for end in ('"', '"\n', '"\r\n\r\n', '" \n'):
        text = 't,v\n1,a\n2,"b\n3,""c""' + end
        path = save(tmp_path, name, gzip.compress(text.encode()) if name.endswith(".gz") else text)
        assert len(rows(path, wanted)) == 2


def test_csv_misfit_in_a_file_of_which_some_columns_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow counts columns as they are in the file."""
    monkeypatch.setattr(csv_source, "_BLOCK_BYTES", 64)
    path = save(tmp_path, "a.csv", "a,t,b,v\n" + "1,2,3,4\n" * 40 + "x,2,y,z\n")
    assert rows(path, Wanted("t", None, "v"))[-1] == {"t": 2, "v": "z"}


@pytest.mark.parametrize("delimiter", ["", "::", '"', "\n", "\r", "é"])
def test_csv_delimiters_that_cannot_be(delimiter: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="the delimiter must be one ASCII character"):
        rows(save(tmp_path, "a.csv", "t,a\n"), delimiter=delimiter)


def test_csv_in_a_file_whose_name_is_no_utf8(tmp_path: Path) -> None:
    assert rows(save(tmp_path, os.fsdecode(b"\xff.csv"), "t,a\n1,x\n")) == [{"t": 1, "a": "x"}]


CELLS = st.one_of(
    st.sampled_from(
        ["", "NA", "1", "-7", "007", "1.5", "x", "true", "2013-01-01", "2013-01-01T10:00:00", "2013-01-01T10:00:00.5Z"]
    ),
    st.sampled_from(["9" * 20, "1e5", "nan", "a,b", 'say "x"', "two\nlines", "+5", "10:00"]),
)


@examples(60)
@given(table=st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=12), block=st.sampled_from([64, 100, 1000]))
def test_any_csv_is_read_and_digits_stay(
    table: list[tuple[str, str, str]], block: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever types the columns settle on, text columns hold the text and integer columns its canonical form."""
    lines = [",".join(["1", *('"' + cell.replace('"', '""') + '"' for cell in row)]) for row in table]
    path = save(tmp_path_factory.mktemp("csv"), "a.csv", "\n".join(["t,a,b,c", *lines, ""]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_source, "_BLOCK_BYTES", block)
        found = rows(path)
    assert len(found) == len(table)
    for row, cells in zip(found, table, strict=True):
        for name, cell in zip("abc", cells, strict=True):
            value = row[name]
            if isinstance(value, str | int) and not isinstance(value, bool):
                assert str(value) == cell
            elif isinstance(value, float) and value == value:
                assert value == float(cell)


# --- JSON Lines ---


def test_json_lines_are_kept_as_they_are(tmp_path: Path) -> None:
    lines = [
        '{"t":1, "a":  1.50, "b":{"c":[1,null]}}',
        '{"a":"now text","t":2,"t2":12345678901234567890123}',
        '{"t":3,"é":"\\u00e9"}',
    ]
    path = save(tmp_path, "a.jsonl", "\ufeff" + "\r\n\n  ".join(lines))
    assert json_texts(path) == lines
    assert rows(path) == [{"t": 1}, {"t": 2}, {"t": 3}]
    assert json_texts(save(tmp_path, "a.ndjson.gz", gzip.compress("\n".join(lines).encode()))) == lines


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "null"], [1, None]),
        (["18446744073709551615"], [2**64 - 1]),
        (['"x"', '""'], ["x", ""]),
        (["true"], [True]),
        (['"\\u00e9\\n"'], ["é\n"]),
    ],
)
def test_json_lines_values(values: list[str], expected: list[Any], tmp_path: Path) -> None:
    path = save(tmp_path, "a.jsonl", "".join(f'{{"t":1,"k":{value}}}\n' for value in values))
    assert [row["k"] for row in rows(path, Wanted("t", "k"))] == expected


def test_json_lines_type_may_change_from_block_to_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines_source, "_BLOCK_BYTES", 40)
    path = save(tmp_path, "a.jsonl", '{"t":1,"k":5}\n' * 20 + '{"t":1,"k":"x"}\n' * 20)
    assert [row["k"] for row in rows(path, Wanted("t", "k"))] == [5] * 20 + ["x"] * 20


@pytest.mark.parametrize("value", ["1.5", '{"a":1}', "[1]", '1}\n{"k":"x"'])
def test_json_lines_kinds_that_are_no_key(value: str, tmp_path: Path) -> None:
    path = save(tmp_path, "a.jsonl", f'{{"t":1,"k":{value}}}\n')
    with pytest.raises(InvalidArgumentError, match="column 'k'"):
        rows(path, Wanted("t", "k"))


def test_json_lines_column_that_no_row_has(tmp_path: Path) -> None:
    path = save(tmp_path, "a.jsonl", '{"t":1}\n{"t":2}\n')
    with pytest.raises(InvalidArgumentError, match="no row has a value in column 'k'"):
        rows(path, Wanted("t", "k"))
    assert rows(save(tmp_path, "b.jsonl", "\n \n"), Wanted("t", "k")) == []


@pytest.mark.parametrize(
    ("bad", "row"),
    [
        ("x", 4),
        ('{"t":', 4),
        ('{"t":1} {"t":2}', 4),
        ('{"t":1}{"t":2}\n{"t":3,\n"k":4}', 4),  # as many objects as lines
        ("[1]", 4),
        ('{"t":1},', 4),
        ("7", 4),
        ('{"t":1,"x":nan}', 4),
        (b'{"t":1,"x":"\xff"}', 4),
    ],
)
def test_json_lines_errors_name_the_row(bad: str | bytes, row: int, tmp_path: Path) -> None:
    raw = bad.encode() if isinstance(bad, str) else bad
    path = save(tmp_path, "a.jsonl", b'{"t":1}\n\n' * 3 + raw + b'\n{"t":1}\n' * 50)
    with pytest.raises(CorruptDataError, match=rf"row {row} is not"):
        rows(path)


def test_json_document_is_not_json_lines(tmp_path: Path) -> None:
    with pytest.raises(CorruptDataError, match="row 1 is not one JSON object on one line"):
        rows(save(tmp_path, "a.json", json.dumps([{"t": 1}, {"t": 2}], indent=1)))


def test_json_lines_of_any_block_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [json.dumps({"t": i, "v": "x" * (i % 50)}) for i in range(100)]
    path = save(tmp_path, "a.jsonl", "\n".join(lines))
    for block in (1, 7, 64, 1000):
        monkeypatch.setattr(json_lines_source, "_BLOCK_BYTES", block)
        assert json_texts(path) == lines


# --- Parquet ---


def test_parquet(tmp_path: Path) -> None:
    table = pa.table(
        {"t": pa.array(range(1000), pa.timestamp("us")), "k": [f"k{i}" for i in range(1000)], "v": [[i] for i in range(1000)]}
    )
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=300)
    assert rows(path) == table.to_pylist()
    assert [row["v"] for row in rows(path, Wanted("t", "k", "v"))] == table["v"].to_pylist()
    assert list(rows(path, Wanted("t"))[0]) == ["t", "k", "v"]
    with pytest.raises(InvalidArgumentError, match=r"no column 'x'.*t, k, v"):
        rows(path, Wanted("x"))
    pq.write_table(table.slice(0, 0), path)
    assert rows(path) == []


def test_parquet_errors(tmp_path: Path) -> None:
    table = pa.table({"t": list(range(100_000))})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, compression="gzip")
    data = path.read_bytes()
    for broken in (b"", b"nonsense", data[:-5], data[: len(data) // 2], data[:100] + bytes(2000) + data[2100:]):
        with pytest.raises(CorruptDataError) as error:
            rows(save(tmp_path, "b.parquet", broken))
        assert "b.parquet" in str(error.value)
        assert "\n" not in str(error.value)


# --- All ---


def test_formats_by_ending(tmp_path: Path) -> None:
    assert format_of(Path("a.CSV")) == "csv"
    assert format_of(Path("a.b.jsonl.gz")) == "jsonl"
    assert format_of(Path("a.pq")) == "parquet"
    with pytest.raises(InvalidArgumentError, match="cannot be determined from its extension"):
        format_of(Path("a.txt"))
    with pytest.raises(InvalidArgumentError, match="unknown file format"):
        open_source(tmp_path / "a.csv", T, "xml")


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_pipe_cannot_be_read_twice(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(InvalidArgumentError, match="a pipe or device cannot be read as"):
        rows(tmp_path / name)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_missing_files(name: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        rows(tmp_path / name)


def test_large_batches_are_cut() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["x" * 100] * 1000)], ["s"])
    parts = list(slices(batch, 20_000))
    assert [part.num_rows for part in parts] == [167, 167, 167, 167, 167, 165]
    assert pa.Table.from_batches(parts).num_rows == 1000
    assert list(slices(batch.slice(0, 0))) == []
