"""Selects records of Arrow batches: by key, header, regular expression, or an SQL expression.

Every filter works on whole batches. A record must pass every option that is given. If an option is repeated, the record must
match at least one of the option's values.

| option | a record passes if |
|---|---|
| `--key K` | its key is exactly the bytes of K (UTF-8) |
| `--grep REGEX` | the expression (RE2 syntax) matches somewhere in its key or value |
| `--header NAME[=VALUE]` | it has a header with that name (and value) |
| `--where EXPRESSION` | the expression is true (`where`) |

If keys and values are decoded, `--key` and `--grep` apply to the printed text, and `--where` applies to the typed values
(`decoded_filter`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tidelog.errors import InvalidArgumentError
from tidelog.sources.selection.row_bytes import kept, rows_apart

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.decoding.decodings import Decodings

Filter = Callable[["pa.RecordBatch"], "pa.RecordBatch"]


def filters_for(
    keys: Sequence[str],
    expressions: Sequence[str],
    headers: Sequence[str],
    where: str | None,
    *,
    ignores_case: bool = False,
    decodings: Decodings | None = None,
    prefix: str = "",
) -> list[Filter]:
    """Return the filters for a command's options. The filters expect undecoded records; `decodings` say how keys and values are
    printed. In errors and notices, `prefix` precedes the names `grep` and `where`; for a command line it is `--`.

    Raises:
        InvalidArgumentError: a malformed regular expression or SQL expression.
        MissingPackageError: `where` needs DuckDB.
    """
    found = [_by_header(headers)] if headers else []
    texts = [_by_key(keys)] if keys else []
    texts += [_by_expression(expressions, ignores_case, f"{prefix}grep")] if expressions else []
    if where is not None:
        from tidelog.sources.selection.where import Where

        typed = [Where(where, of_decoded=decodings is not None, name=f"{prefix}where")]
    else:
        typed = []
    if decodings is not None and (texts or typed):
        from tidelog.sources.selection.decoded_filter import DecodedFilter

        return [*found, DecodedFilter(decodings, texts, typed)]
    return [*found, *texts, *typed]


def filter_notices(filters: Sequence[Filter]) -> list[str]:
    """Return notices about records to which filters could not be applied, one sentence each."""
    return [text for one in filters if hasattr(one, "notices") for text in one.notices()]


def filtered(batches: Iterable[pa.RecordBatch], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
    """Yield the records that pass all filters, without empty batches. Large records are not copied, except by SQL expressions."""
    for batch in batches if not filters else (part for whole in batches for part in rows_apart(whole)):
        for keep in filters:
            if not batch.num_rows:
                break
            batch = keep(batch)
        if batch.num_rows:
            yield batch


def limited(batches: Iterable[pa.RecordBatch], count: int | None) -> Iterator[pa.RecordBatch]:
    """Yield the first `count` records, or all if `count` is None. Reads no more batches than necessary."""
    if count == 0:
        return
    for batch in batches:
        if count is None:
            yield batch
            continue
        yield batch.slice(0, count)
        count -= min(count, batch.num_rows)
        if not count:
            return


def _by_key(keys: Sequence[str]) -> Filter:
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pa.array([key.encode("utf-8", "surrogateescape") for key in keys], pa.binary())
    return lambda batch: kept(batch, pc.is_in(batch.column("key"), wanted))


def _by_expression(expressions: Sequence[str], ignores_case: bool, name: str) -> Filter:
    import pyarrow as pa
    import pyarrow.compute as pc

    for text in expressions:
        try:
            pc.match_substring_regex(pa.array([b""], pa.binary()), text, ignore_case=ignores_case)
        except pa.ArrowInvalid as error:
            reason = str(error).removeprefix("Invalid regular expression: ")
            raise InvalidArgumentError(f"{name}: invalid regular expression: {reason}", found=repr(text)) from None

    def keep(batch: pa.RecordBatch) -> pa.RecordBatch:
        found = None
        for name in ("value", "key"):
            for text in expressions:
                one = pc.fill_null(pc.match_substring_regex(batch.column(name), text, ignore_case=ignores_case), False)
                found = one if found is None else pc.or_(found, one)
        return kept(batch, found)

    return keep


def _by_header(headers: Sequence[str]) -> Filter:
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = [(name, value.encode("utf-8", "surrogateescape") if given else None) for name, given, value in _parts(headers)]

    def keep(batch: pa.RecordBatch) -> pa.RecordBatch:
        column = batch.column("headers")
        flat = column.flatten()
        names, values = flat.field("key"), flat.field("value")
        rows = pc.list_parent_indices(column)
        found: set[int] = set()
        for name, value in wanted:
            fits = pc.equal(names, name)
            if value is not None:
                fits = pc.and_(fits, pc.fill_null(pc.equal(values, value), False))
            found.update(pc.unique(rows.filter(fits)).to_pylist())
        return batch if len(found) == batch.num_rows else batch.take(pa.array(sorted(found), pa.int64()))

    return keep


def _parts(headers: Sequence[str]) -> Iterator[tuple[str, bool, str]]:
    for text in headers:
        name, separator, value = text.partition("=")
        yield name, bool(separator), value
