"""`/api/lines`: the shell command, Python, SQL and Spark code that return the same records as a request."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence

from tidelog.model import KAFKAS_TOPICS, READ_UNCOMMITTED
from tidelog.sources.opening import settled
from tidelog.sources.selection.record_columns import quoted
from tidelog.times import format_time
from tidelog.web.context import Answer, Context
from tidelog.web.jobs import Job
from tidelog.web.query import Query
from tidelog.web.wanted import Wanted


def lines(context: Context, query: Query, job: Job) -> Answer:
    """Return the lines, and notes about the parameters that they cannot express."""
    wanted = Wanted.of(context, query)
    pool = context.sources.named(query.text("source"))
    address = settled(str(pool.address))
    is_by_time = query.choice("order", ("time", "offset")) == "time"
    partitions: list[int] = []
    if wanted.offset is not None or wanted.end_offset is not None:
        with pool.borrowed() as source:
            partitions = wanted.partitions(source)
    return {
        "cli": _cli(address, wanted, query, is_by_time),
        "python": _python(address, wanted, partitions, _where_of_python(query, wanted)),
        "sql": _sql(address, wanted, query, is_by_time),
        "spark": _spark(address, wanted, is_cluster=pool.kind.is_cluster),
        "notes": list(_notes(wanted, query)),
    }


def _notes(wanted: Wanted, query: Query) -> Iterator[str]:
    if wanted.filters:
        is_whole = _where_of_python(query, wanted) is not None and not any(query.all(name) for name in ("key", "grep", "header"))
        yield f"the {'Spark line reads' if is_whole else 'Python and Spark lines read'} more records: filter the result"
    if query.all("grep") or query.all("header"):
        yield "the SQL line does not search by regular expression or header: filter its result"
    if wanted.offset is not None or wanted.end_offset is not None:
        yield "the Spark line does not limit offsets: filter its result"


def _times(wanted: Wanted) -> tuple[str | None, str | None]:
    span = wanted.request.time
    return tuple(None if one is None else format_time(one) for one in (span.start_ms, span.end_ms))  # type: ignore[return-value]


def _cli(address: str, wanted: Wanted, query: Query, is_by_time: bool) -> str:
    start, end = _times(wanted)
    request = wanted.request
    words = [] if start is None else ["--from", start]
    words += [] if end is None else ["--to", end]
    words += [word for number in request.partitions or () for word in ("--partition", str(number))]
    if wanted.offset is not None or wanted.end_offset is not None:
        first = "" if wanted.offset is None else str(wanted.offset)
        words += ["--offset", first if wanted.end_offset is None else f"{first}:{wanted.end_offset}"]
    for name in ("key", "grep", "header"):
        words += [word for value in query.all(name) for word in (f"--{name}", value)]
    where = query.text("where")
    words += [] if where is None else ["--where", where]
    words += ["--ignore-case"] if query.flag("ignore_case") else []
    words += [] if request.isolation == READ_UNCOMMITTED else ["--isolation", request.isolation]
    words += ["--until-high-watermark"] if request.until != "log_end" else []
    words += _decode_words(query, request.topic)
    words += ["--sort", "time"] if is_by_time else []
    names = [address, request.topic]
    # A topic may begin with a dash. Then it must follow all options.
    return shlex.join(["tidelog", "cat", *([*words, "--", *names] if request.topic.startswith("-") else [*names, *words])])


def _decode_words(query: Query, topic: str) -> list[str]:
    given = (("--decode", query.text("decode")), ("--key-decode", query.text("key_decode")))
    # `auto` is what `cat` does with internal topics unless told otherwise.
    is_default = topic in KAFKAS_TOPICS
    return [
        word for option, value in given if value is not None and not (value == "auto" and is_default) for word in (option, value)
    ]


def _where_of_python(query: Query, wanted: Wanted) -> str | None:
    """Return the `where` expression for `scan`, None if the expression is about decoded values: the Python line decodes no
    values.
    """
    return None if _decode_words(query, wanted.request.topic) else query.text("where")


def _python(address: str, wanted: Wanted, partitions: Sequence[int], where: str | None) -> str:
    start, end = _times(wanted)
    request = wanted.request
    arguments = [repr(address), repr(request.topic)]
    arguments += [f"{name}={value!r}" for name, value in (("start", start), ("end", end)) if value is not None]
    if wanted.offset is not None or wanted.end_offset is not None:
        ranges = ", ".join(f"{number}: ({wanted.offset}, {wanted.end_offset})" for number in partitions)
        arguments.append(f"offsets={{{ranges}}}")
    elif request.partitions is not None:
        arguments.append(f"partitions={list(request.partitions)}")
    if request.isolation != READ_UNCOMMITTED:
        arguments.append(f"isolation={request.isolation!r}")
    if request.until != "log_end":
        arguments.append(f"until={request.until!r}")
    if where is not None:
        arguments.append(f"where={where!r}")
    return f"import tidelog\nrecords = tidelog.scan({', '.join(arguments)})"


def _sql(address: str, wanted: Wanted, query: Query, is_by_time: bool) -> str:
    start, end = _times(wanted)
    request = wanted.request
    tests = [] if start is None else [f"timestamp >= {_quoted(start)}"]
    tests += [] if end is None else [f"timestamp < {_quoted(end)}"]
    if request.partitions is not None:
        tests.append(f"partition IN ({', '.join(map(str, request.partitions))})")
    tests += [] if wanted.offset is None else [f'"offset" >= {wanted.offset}']
    tests += [] if wanted.end_offset is None else [f'"offset" < {wanted.end_offset}']
    keys = query.all("key")
    if keys:
        tests.append(f"key IN ({', '.join(f'encode({_quoted(key)})' for key in keys)})")
    where = query.text("where")
    tests += [] if where is None else [f"({where})"]
    condition = f" WHERE {' AND '.join(tests)}" if tests else ""
    order = ' ORDER BY timestamp, partition, "offset"' if is_by_time else ""
    decoded = [] if where is None else _decode_words(query, request.topic)
    command = shlex.join(["tidelog", "sql", *decoded, address])
    return f"{command} {_in_shell(f'SELECT * FROM {quoted(request.topic)}{condition}{order}')}"


def _in_shell(sql: str) -> str:
    """Quote SQL for a shell. Use double quotes, as SQL has single quotes, unless a shell would expand part of the text."""
    if any(one in sql for one in "\\`$!"):
        return shlex.quote(sql)
    return '"' + sql.replace('"', '\\"') + '"'


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _spark(address: str, wanted: Wanted, *, is_cluster: bool) -> str:
    start, end = _times(wanted)
    request = wanted.request
    if request.partitions is None:
        which = ("subscribe", request.topic)
    else:
        which = ("assign", json.dumps({request.topic: list(request.partitions)}))
    isolation = None if request.isolation == READ_UNCOMMITTED else request.isolation
    options = [
        ("kafka.bootstrap.servers" if is_cluster else "path", address),
        *(which, ("startTime", start), ("endTime", end), ("isolationLevel", isolation), ("includeHeaders", "true")),
    ]
    chain = "".join(f".option({name!r}, {value!r})" for name, value in options if value is not None)
    return f"spark.read.format('tidelog'){chain}.load()"
