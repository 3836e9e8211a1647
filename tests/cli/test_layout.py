"""What people see: tables that line up, sizes, and bytes that cannot do harm to a terminal."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cli.printing import terminal
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


# --- on a terminal


HEADER = ("topic", "log start", "high watermark", "size", "from")
ROWS = [["orders", 0, 7, show_bytes_size(2048), "index"], ["returns", 0, 123, show_bytes_size(5), None]]


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The width of the terminal that standard output is, without colours."""
    width = [80]
    monkeypatch.setattr(terminal, "stdout_width", lambda: width[0])
    monkeypatch.setenv("NO_COLOR", "1")
    return width


def shown(spare: tuple[str, ...] = (), **options: Any) -> list[str]:
    return list(table(HEADER, ROWS, spare=spare, **options))


def test_a_table_that_fits_stays(columns: list[int]) -> None:
    whole = list(table(HEADER, ROWS, to_stdout=False))
    columns[0] = max(map(len, whole))
    assert shown() == whole


def test_long_headings_get_several_lines(columns: list[int]) -> None:
    columns[0] = 44
    lines = shown()
    assert len(lines) == 4
    assert all(len(line) <= 44 for line in lines)
    assert lines[0].split() == ["log", "high"]
    assert lines[1].split() == ["topic", "start", "watermark", "size", "from"]


def test_columns_that_do_not_fit_are_named(columns: list[int]) -> None:
    columns[0] = 30
    lines = shown(("from", "high watermark", "log start"))
    assert "not shown: " in " ".join(lines)
    assert all(len(one) <= 30 for one in lines)
    columns[0] = 60
    assert "not shown" not in " ".join(shown(("from",)))


@given(
    width=st.integers(10, 90),
    names=st.lists(st.text("ab ", min_size=1, max_size=20).filter(str.strip), min_size=1, max_size=8, unique=True),
    rows=st.lists(st.lists(st.integers(0, 10**9) | st.text("xyz", max_size=12), max_size=9), max_size=6),
    data=st.data(),
)
def test_tables_fit_if_columns_may_be_left_out(
    width: int, names: list[str], rows: list[list[object]], data: st.DataObject
) -> None:
    spare = tuple(data.draw(st.permutations(names)))[: data.draw(st.integers(0, len(names)))]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(terminal, "stdout_width", lambda: width)
        patched.setenv("NO_COLOR", "1")
        lines = list(table(names, rows, spare=spare))
    whole = list(table(names, rows, to_stdout=False))
    if max(map(len, whole)) <= width:
        assert lines == whole
    if len(spare) == len(names) and max(map(len, rows), default=0) <= len(names):
        assert all(len(line) <= width for line in lines)


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "CLICOLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    pipe, screen = io.StringIO(), Terminal()
    assert (terminal.shows_colours(pipe), terminal.shows_colours(screen), terminal.shows_colours(None)) == (False, True, False)
    for name, value, expected in (
        ("TERM", "dumb", (False, False)),
        ("CLICOLOR", "0", (False, False)),
        ("FORCE_COLOR", "0", (False, False)),
        ("FORCE_COLOR", "1", (True, True)),
        ("CLICOLOR_FORCE", "1", (True, True)),
        ("NO_COLOR", "", (True, True)),
        ("NO_COLOR", "1", (False, False)),
    ):
        monkeypatch.setenv(name, value)
        assert (terminal.shows_colours(pipe), terminal.shows_colours(screen)) == expected, name


def test_styles_do_not_change_what_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = list(table(HEADER, ROWS))
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = list(table(HEADER, ROWS, styles=["", terminal.DIM]))
    assert coloured != plain
    assert [re.sub(r"\x1b\[\d*m", "", line) for line in coloured] == plain
    assert list(table(HEADER, ROWS, to_stdout=False)) == plain
