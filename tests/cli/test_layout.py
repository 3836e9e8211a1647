"""What people see: tables that line up, sizes, and bytes that cannot do harm to a terminal."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.printing.layout import one_line, show_bytes, show_bytes_size, show_time, some, table
from tidelog.errors import CorruptBatchError


def test_a_table_lines_up() -> None:
    rows = [("flights", 0, 53412, "2013"), ("flights", 11, None, "-"), ("f", 2, 7)]
    assert list(table(["topic", "partition", "offset", "time"], rows)) == [
        "topic    partition  offset  time",
        "flights          0   53412  2013",
        "flights         11       -  -",
        "f                2       7",
    ]
    assert list(table(["a", "b"], [])) == ["a  b"]
    sizes = [(None, show_bytes_size(5)), (None, show_bytes_size(2048))]
    assert list(table(["a", "b"], sizes)) == ["a        b", "-      5 B", "-  2.0 KiB"]
    assert list(table(None, [])) == []
    assert list(table(None, [(1, "x"), (10, "y", "z")])) == [" 1  x", "10  y  z"]


def test_a_table_streams_and_may_widen() -> None:
    lines = table(["n"], ((n,) for n in itertools.count()))
    assert list(itertools.islice(lines, 3)) == ["  n", "  0", "  1"]
    assert list(itertools.islice(lines, 996, 1000)) == ["998", "999", "1000", "1001"]


def test_an_error_comes_after_the_rows_before_it() -> None:
    def rows() -> Iterator[tuple[int]]:
        yield (1,)
        raise CorruptBatchError("bad")

    lines = table(["n"], rows())
    assert [next(lines), next(lines)] == ["n", "1"]
    with pytest.raises(CorruptBatchError):
        next(lines)


def test_a_very_wide_cell_widens_nothing() -> None:
    assert list(table(None, [("x" * 50, "a"), ("y", "b")])) == ["x" * 50 + "  a", "y  b"]
    assert list(table(None, [("x\n", "a"), ("y", "b")])) == ["x\\n  a", "y    b"]


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (16_384, "16.0 KiB"), (1 << 30, "1.0 GiB"), (5 << 50, "5120.0 TiB")],
)
def test_sizes(size_bytes: int, text: str) -> None:
    assert show_bytes_size(size_bytes) == text


def test_nothing_is_a_dash() -> None:
    assert show_time(-1) == "-"
    assert some(-1) is None
    assert some(0) == 0
    assert show_time(0) == "1970-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, "<null>"),
        (b"", ""),
        (b"plain", "plain"),
        ("größe 🌊".encode(), "größe 🌊"),
        (b'{"say": "\\"hi\\"", "path": "C:\\temp"}', '{"say": "\\"hi\\"", "path": "C:\\temp"}'),
        (b"a\nb\tc\r", "$'a\\nb\\tc\\r'"),
        (b"\x1b[31mred\x00", "$'\\x1b[31mred\\x00'"),
        (b"it's \\ \n", "$'it\\'s \\\\ \\n'"),
        (b"\xff\xfe\\", "$'\\xff\\xfe\\\\'"),
        (b"\xc2\x85\x85", "$'\\u0085\\x85'"),
        ("\u2028\u202e".encode(), "$'\\u2028\\u202e'"),
        ("\u200bzero\ufeff".encode(), "$'\\u200bzero\\ufeff'"),
        ("\U000e0001\u00a0".encode() + b"\xff", "$'\\U000e0001\\u00a0\\xff'"),
        (b" lead", " lead"),
        (b"trail ", "$'trail '"),
        (b" ", "$' '"),
        (b"a  b", "a  b"),
        (b"<null>", "$'<null>'"),
        (b"$'x'", "$'$\\'x\\''"),
    ],
)
def test_bytes(data: bytes | None, text: str) -> None:
    assert show_bytes(data) == text


HARD = st.lists(
    st.sampled_from(
        [
            b"\\",
            b"'",
            b"$",
            b"<null>",
            b"x",
            b"85",
            b"n",
            b"\n",
            b"\x85",
            b"\xc2\x85",
            b"\x1b",
            b"\xff",
            b"u0085",
            b"\xe2\x80\xa8",
            b" ",
            b"\xe2\x80\x8b",
            b"\xf3\xa0\x80\x81",
            b"\xc2\xa0",
        ]
    )
).map(b"".join)


@given(st.one_of(st.none(), st.binary(max_size=50), HARD))
def test_what_is_shown_can_be_told_again(data: bytes | None) -> None:
    """No two values look the same, and text that needs no quotes is shown as it is."""
    text = show_bytes(data)
    if text == "<null>":
        assert data is None
    elif text.startswith("$'"):
        assert text.endswith("'")
        inner = re.sub(rb"\\(x..|u....|U........|.)", unescaped, text[2:-1].encode())
        assert inner == data
    else:
        assert text.encode() == data
        assert text == text.rstrip()  # In a table nothing says blanks apart.


def unescaped(found: re.Match[bytes]) -> bytes:
    escape = found[1]
    if escape[:1] == b"x":
        return bytes.fromhex(escape[1:].decode())
    if escape[:1] in (b"u", b"U"):
        return chr(int(escape[1:], 16)).encode()
    return {b"n": b"\n", b"r": b"\r", b"t": b"\t"}.get(escape, escape)


@given(st.binary(max_size=200))
def test_shown_bytes_are_one_harmless_line(data: bytes) -> None:
    text = show_bytes(data)
    text.encode()
    assert len(text.splitlines()) <= 1
    assert text.isprintable()


@given(st.text())
def test_messages_are_one_line(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1
