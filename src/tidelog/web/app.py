"""The ASGI application: the paths, and the JSON of responses and errors.

A response is JSON in ASCII, so no character of a record can end a string early. An error is an object with `what`, `where`,
`found` and `expected`.

| status | if |
|---|---|
| 400 | a parameter is wrong |
| 403 | the request is refused (`security`) |
| 404 | no such path, source, topic, partition, offset |
| 409 | the log is damaged, or changed while it was being read |
| 502 | brokers cannot be reached, or refuse |
| 503 | there are too many requests, or another large read is running |
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, NamedTuple, TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tidelog.errors import (
    AuthenticationError,
    BrokerError,
    BrokerUnreachableError,
    InvalidArgumentError,
    NotFoundError,
    ProtocolError,
    SecurityProtocolError,
    TidelogError,
)
from tidelog.web.context import Answer, Context
from tidelog.web.endpoints import counts, cut, groups, lines, lookup, records, retention, segments, times, topics
from tidelog.web.endpoints.export import Export
from tidelog.web.jobs import BusyError, Job, Jobs, Lane, Stopped
from tidelog.web.page_files import page_file
from tidelog.web.query import Query
from tidelog.web.streams import PIECE_BYTES, exported, tailed

Answers: TypeAlias = Callable[[Request, Query], Awaitable[Response]]

QUICK_S = 20.0
SEARCH_S = 30.0
READ_S = 5.0
"""Seconds that a read of records may take. After that, the response has the records found so far, and where to continue."""


class Endpoint(NamedTuple):
    """A path's function, the threads that run it, and its time limit in seconds."""

    answer: Callable[[Context, Query, Job], Answer]
    lane: Lane = Lane.QUICK
    limit_s: float = QUICK_S


ENDPOINTS = {
    "sources": Endpoint(topics.sources),
    "time": Endpoint(times.understood),
    "topics": Endpoint(topics.topics),
    "topic": Endpoint(topics.topic),
    "segments": Endpoint(segments.segments),
    "counts": Endpoint(counts.counts, Lane.READ, READ_S),
    "records": Endpoint(records.records, Lane.READ, READ_S),
    "record": Endpoint(lookup.record, Lane.READ, READ_S),
    "lookup": Endpoint(lookup.lookup, Lane.READ, READ_S),
    "cut": Endpoint(cut.cut, Lane.READ, SEARCH_S),
    "retention": Endpoint(retention.retention, Lane.READ, SEARCH_S),
    "groups": Endpoint(groups.groups, Lane.READ, SEARCH_S),
    "lines": Endpoint(lines.lines),
    "group": Endpoint(groups.group, Lane.READ, SEARCH_S),
}


def make_app(context: Context, jobs: Jobs) -> Starlette:
    """Return the application without `security.Guard`."""

    def named(query: Query) -> str:
        return context.sources.named(query.text("source")).name

    async def tail(request: Request, query: Query) -> Response:
        events = tailed(context, jobs, query)
        return StreamingResponse(_after(await anext(events), events), media_type="text/event-stream")

    async def export(request: Request, query: Query) -> Response:
        wanted = Export(context, query)
        pieces = exported(jobs, wanted.write, named(query))
        first = await anext(pieces, b"")
        return StreamingResponse(_after(first, pieces), media_type=wanted.media_type, headers=_download(wanted.name))

    async def whole(request: Request, query: Query) -> Response:
        data, name = await jobs.run(
            Lane.READ, READ_S, lambda job: lookup.record_bytes(context, query, job), _closed(request), source=named(query)
        )
        headers = {"content-length": str(len(data)), **_download(name)}
        return StreamingResponse(_in_pieces(data), media_type="application/octet-stream", headers=headers)

    def as_json(endpoint: Endpoint) -> Answers:
        async def answer(request: Request, query: Query) -> Response:
            def work(job: Job) -> bytes:
                return to_json(endpoint.answer(context, query, job))

            data = await jobs.run(endpoint.lane, endpoint.limit_s, work, _closed(request), source=named(query))
            return Response(data, media_type="application/json")

        return answer

    def route(path: str, answers: Answers) -> Route:
        async def answer(request: Request) -> Response:
            try:
                return await answers(request, Query(request.query_params.multi_items(), context.clock))
            except TidelogError as error:
                return problem(status_of(error), error)
            except Stopped:
                return Response(status_code=499)  # Nobody reads it.
            except Exception as error:
                if os.environ.get("TIDELOG_TRACEBACK"):
                    raise
                text = f"unexpected {type(error).__name__}: {error} (TIDELOG_TRACEBACK=1 shows where)"
                return problem(500, TidelogError(text))

        return Route(path, answer)

    streams: dict[str, Answers] = {"tail": tail, "export": export, "bytes": whole}
    answers = streams | {name: as_json(one) for name, one in ENDPOINTS.items()}
    return Starlette(routes=[*(route(f"/api/{name}", one) for name, one in answers.items()), Route("/{path:path}", _page)])


async def _page(request: Request) -> Response:
    found = page_file(request.url.path)
    if found is None:
        return problem(404, NotFoundError("no such path", path=request.url.path))
    return Response(found[0], media_type=found[1])


async def _after(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    async with aclosing(rest):
        yield first
        async for piece in rest:
            yield piece


async def _in_pieces(data: memoryview) -> AsyncIterator[bytes]:
    """Yield the data in pieces, as the client receives them. A body of 100 MB sent as a whole would be copied."""
    for start in range(0, len(data), PIECE_BYTES):
        yield bytes(data[start : start + PIECE_BYTES])


def _download(name: str) -> dict[str, str]:
    plain_name = "".join(sign if sign.isascii() and (sign.isalnum() or sign in "._-") else "_" for sign in name)
    return {"content-disposition": f'attachment; filename="{plain_name}"'}


def _closed(request: Request) -> Callable[[], Any]:
    async def closed() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    return closed


def to_json(answer: Answer) -> bytes:
    """Return a response's body: JSON in ASCII."""
    return json.dumps(answer, separators=(",", ":"), allow_nan=False).encode("ascii")


def problem(status: int, error: TidelogError) -> Response:
    """Return the response for an error."""
    place = error.path if error.position is None else f"{error.path or ''} at byte {error.position}".strip()
    found, expected = (None if one is None else str(one) for one in (error.found, error.expected))
    body = {"error": {"what": error.message, "where": place, "found": found, "expected": expected}}
    return Response(to_json(body), status_code=status, media_type="application/json")


def status_of(error: TidelogError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, InvalidArgumentError):
        return 400
    if isinstance(error, NotFoundError):
        return 404
    if isinstance(error, BusyError):
        return 503
    if isinstance(error, BrokerUnreachableError | BrokerError | ProtocolError | AuthenticationError | SecurityProtocolError):
        return 502
    return 409
