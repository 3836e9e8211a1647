"""Formats output: tables, sizes, and text with escaped control characters for people; JSON lines for scripts."""

from __future__ import annotations

import csv
import io
import json
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from tidelog.cli.printing import terminal
from tidelog.sizes import show_size
from tidelog.times import format_time

NOTHING = "-"
"""An empty cell of a table."""

json_line = json.JSONEncoder(separators=(",", ":")).encode
"""Encodes an object as a line for scripts: compact, and in ASCII, whatever the encoding of standard output."""

# Control characters (C0, DEL, C1), the line separators that some programs treat as line ends, and the marks that change the
# writing direction: none of them may reach a terminal from a record's bytes or a file's name.
_ESCAPES = {
    **{code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))},
    **{code: f"\\u{code:04x}" for code in (0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))},
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}
_TEXT_ESCAPES = {
    **_ESCAPES,
    # This code point has two bytes in UTF-8; `\x85` would mean a single byte, which is not UTF-8.
    **{code: f"\\u{code:04x}" for code in range(0x80, 0xA0)},
    ord("\\"): "\\\\",
    ord("'"): "\\'",
}
_QUOTE = "$'"
_NULL = "<null>"


def one_line(text: str) -> str:
    """Return a message as one harmless line; control characters are escaped."""
    # Escaped characters are not printable, and most texts are printable: the translation costs ten times as much as this check.
    return text if text.isprintable() else text.translate(_ESCAPES)


def show_bytes(data: bytes | None) -> str:
    r"""Return bytes as one harmless line of text from which the bytes can be restored; `<null>` for None.

    Printable UTF-8 is shown unchanged, including backslashes. Everything else is quoted as in a shell, `$'a\nb\xff'`: escapes
    have a meaning only within such quotes. A text that looks like such a quote or like `<null>`, or ends in a blank, is quoted as
    well.
    """
    if data is None:
        return _NULL
    try:
        text = data.decode()
        if text.isprintable() and text[-1:] != " " and text != _NULL and not text.startswith(_QUOTE):
            return text
        escaped = _printable(text.translate(_TEXT_ESCAPES))
    except UnicodeDecodeError:
        # Bytes that are not UTF-8 become lone surrogates first, so that their own backslashes are not doubled.
        text = data.decode("utf-8", "surrogateescape").translate(_TEXT_ESCAPES)
        escaped = "".join(f"\\x{ord(c) - 0xDC00:02x}" if 0xDC80 <= ord(c) <= 0xDCFF else _printable(c) for c in text)
    return f"{_QUOTE}{escaped}'"


def _printable(text: str) -> str:
    r"""Escape characters that have no width or are not assigned: `\u200b`, `\U000e0001`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}" for c in text)


def show_time(time_ms: int) -> str:
    """Return a record's timestamp in UTC, or `-` if it has none."""
    return NOTHING if time_ms == -1 else format_time(time_ms)


def some(number: int) -> int | None:
    """Return a number for a table. Kafka's -1, for "none", becomes None."""
    return None if number == -1 else number


def csv_lines(rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield rows as CSV (RFC 4180), None as an empty cell."""
    line = io.StringIO()
    writer = csv.writer(line, lineterminator="")
    for row in rows:
        writer.writerow(row)
        yield line.getvalue()
        line.seek(0)
        line.truncate()


class Amount(str):
    """A text that represents a number, so that a table aligns it to the right."""

    __slots__ = ()


def show_bytes_size(size_bytes: int) -> Amount:
    """Return a size in readable form: 999 B, 1.5 KiB, 12.0 GiB."""
    return Amount(show_size(size_bytes))


def show_number(number: int, what: str) -> str:
    """Return a number of things: `1 point`, `2,000 points`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def show_span(milliseconds: int) -> str:
    """Return a time span in its two largest units: 3d 4h, 250ms; with a sign if it is negative."""
    parts = []
    rest = abs(milliseconds)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return ("-" if milliseconds < 0 else "") + (" ".join(parts[:2]) or "0ms")


def show_count(count: int | None) -> Amount | None:
    """Return a count with separators: 1,234,567. Offsets and partition numbers get no separators."""
    return None if count is None else Amount(f"{count:,}")


def table(
    header: Sequence[str] | None,
    rows: Iterable[Sequence[object]],
    *,
    spare: Sequence[str] = (),
    styles: Sequence[str] = (),
    to_stdout: bool = True,
    indent: str = "",
) -> Iterator[str]:
    """Yield the lines of a table: columns as wide as their widest cell, whole numbers aligned to the right, others to the left.

    Rows are laid out a thousand at a time, so that any number of rows can be printed in bounded memory; a column may get wider
    from one thousand rows to the next, but never narrower. A column is numeric if each of its first cells is an int, an
    Amount, or None, which is shown as `-`. Cells are made harmless by `one_line`; a cell with more than `WIDE` characters does
    not widen its column. A row may be shorter than the others. No line ends in blanks.

    If standard output is a terminal and the table is wider, long headings get several lines; if it is still wider, the columns in
    `spare` are left out one by one, in that order, and the last line names them. `styles` are the colours of the columns.
    """
    limit = terminal.stdout_width() if to_stdout else None
    has_colours = to_stdout and terminal.shows_colours(sys.stdout)
    widths = [] if header is None else [len(name) for name in header]
    right: list[bool] | None = None
    kept: list[int] = []
    for chunk in _chunks(rows):
        columns = max([len(widths), *map(len, chunk)])
        widths += [0] * (columns - len(widths))
        texts = [[_text(cell) for cell in row] for row in chunk]
        if right is None:
            right = [_is_numeric(row[n] for row in chunk if n < len(row)) for n in range(columns)]
            lines = [] if header is None else [list(header)]
            if header is not None and limit is not None:
                lines, widths, kept = _fitted(header, texts, limit - len(indent), spare)
            kept = kept or list(range(columns))
            _widen(widths, texts)
            for names in lines:
                line = indent + _line(names, widths, right, kept)
                yield terminal.styled(line, terminal.BOLD) if has_colours else line
        else:
            _widen(widths, texts)
        right += [False] * (columns - len(right))
        if len(kept) < columns and header is None:
            kept = list(range(columns))
        for cells in texts:
            yield indent + _line(cells, widths, right, kept, styles if has_colours else ())
    left_out = [] if header is None else [name for n, name in enumerate(header) if n not in kept]
    if left_out and limit is not None:
        for line in textwrap.wrap(f"{indent}(not shown: {', '.join(left_out)}; to see more, use a wider terminal)", limit):
            yield terminal.styled(line, terminal.DIM) if has_colours else line


def _fitted(
    header: Sequence[str], texts: Sequence[Sequence[str]], limit: int, spare: Sequence[str]
) -> tuple[list[list[str]], list[int], list[int]]:
    """Return the lines of the heading, the minimum widths, and the columns that are shown, so that the table fits `limit`."""
    cells = [0] * max([len(header), *map(len, texts)])
    _widen(cells, texts)
    shown = list(range(len(cells)))

    def total(widths: Sequence[int]) -> int:
        return sum(widths[n] for n in shown) + 2 * (len(shown) - 1)

    names = [header[n] if n < len(header) else "" for n in range(len(cells))]
    whole = [max(len(name), cell) for name, cell in zip(names, cells, strict=True)]
    if total(whole) <= limit:
        return [list(header)], whole, shown
    folded = [max(*map(len, name.split() or [""]), cell) for name, cell in zip(names, cells, strict=True)]
    left_out: list[int] = []
    for name in spare:
        if total(folded) > limit:
            left_out.append(names.index(name))
            shown.remove(left_out[-1])
    for n in reversed(left_out):
        if total(folded) + folded[n] + 2 <= limit:
            shown = sorted([*shown, n])
    # Without the columns that were left out, headings may fit on one line again.
    for n in shown:
        if total([*folded[:n], whole[n], *folded[n + 1 :]]) <= limit:
            folded[n] = whole[n]
    broken = [textwrap.wrap(name, max(width, 1)) for name, width in zip(names, folded, strict=True)]
    height = max(len(broken[n]) for n in shown)
    return [[([""] * (height - len(one)) + one)[row] for one in broken] for row in range(height)], folded, shown


WIDE = 40
"""A cell with more characters than this is printed unchanged and does not widen its column."""

_ROWS_AT_A_TIME = 1000


def _chunks(rows: Iterable[Sequence[object]]) -> Iterator[list[Sequence[object]]]:
    """Yield the rows in lists of a thousand, at least one list. If reading the rows raises an error, the rows before it are
    yielded first.
    """
    chunk: list[Sequence[object]] = []
    failure: Exception | None = None
    yielded = False
    iterator = iter(rows)
    while True:
        try:
            chunk.append(next(iterator))
        except StopIteration:
            break
        except Exception as error:
            failure = error
            break
        if len(chunk) == _ROWS_AT_A_TIME:
            yield chunk
            yielded = True
            chunk = []
    if chunk or not yielded:
        yield chunk
    if failure is not None:
        raise failure


def _is_numeric(cells: Iterable[object]) -> bool:
    kinds = {type(cell) for cell in cells}
    return kinds <= {int, Amount, type(None)} and kinds != {type(None)}


def _text(cell: object) -> str:
    return NOTHING if cell is None else one_line(str(cell))


def _widen(widths: list[int], rows: Iterable[Sequence[str]]) -> None:
    for row in rows:
        for column, text in enumerate(row):
            if widths[column] < len(text) <= WIDE:
                widths[column] = len(text)


def _line(
    row: Sequence[str], widths: Sequence[int], right: Sequence[bool], kept: Sequence[int], styles: Sequence[str] = ()
) -> str:
    cells = [row[n].rjust(widths[n]) if right[n] else row[n].ljust(widths[n]) for n in kept if n < len(row)]
    if not styles or not cells:
        return "  ".join(cells).rstrip()
    cells[-1] = cells[-1].rstrip()
    return "  ".join(
        terminal.styled(text, styles[n]) if n < len(styles) and styles[n] else text for n, text in zip(kept, cells, strict=False)
    )
