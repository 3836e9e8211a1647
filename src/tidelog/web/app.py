"""The ASGI application: paths, and how answers and errors are written.

An answer is JSON in ASCII, so that nothing in a record can end a text early. An error is an object: what, where, found, expected.

| status | if |
|---|---|
| 400 | a parameter is wrong |
| 403 | the request is refused (`security`) |
| 404 | no such path, source, topic, partition, offset |
| 409 | the log is damaged, or changed while it was read |
| 502 | brokers cannot be reached, or refuse |
| 503 | too many requests at once |
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
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
from tidelog.web.endpoints import counts, records, segments, topics
from tidelog.web.jobs import Job, Jobs, Lane, Stopped
from tidelog.web.page_files import page_file
from tidelog.web.query import Query

QUICK_S = 20.0
READ_S = 5.0
"""How long a read of records may take; then the answer has what was found, and where to continue."""


class Endpoint(NamedTuple):
    """How a path is answered."""

    answer: Callable[[Context, Query, Job], Answer]
    lane: Lane = Lane.QUICK
    limit_s: float = QUICK_S


ENDPOINTS = {
    "sources": Endpoint(topics.sources),
    "topics": Endpoint(topics.topics),
    "topic": Endpoint(topics.topic),
    "segments": Endpoint(segments.segments),
    "counts": Endpoint(counts.counts, Lane.READ, READ_S),
    "records": Endpoint(records.records, Lane.READ, READ_S),
}


def make_app(context: Context, jobs: Jobs) -> Starlette:
    """Return the application, without its guard."""
    routes = [Route(f"/api/{name}", _answered(context, jobs, one)) for name, one in ENDPOINTS.items()]
    routes.append(Route("/{path:path}", _page))
    return Starlette(routes=routes)


async def _page(request: Request) -> Response:
    found = page_file(request.url.path)
    if found is None:
        return problem(404, NotFoundError("there is no such path", path=request.url.path))
    return Response(found[0], media_type=found[1])


def _answered(context: Context, jobs: Jobs, endpoint: Endpoint) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        query = Query(request.query_params.multi_items(), context.clock)
        try:
            found = await jobs.run(
                endpoint.lane, endpoint.limit_s, lambda job: to_json(endpoint.answer(context, query, job)), _closed(request)
            )
        except TidelogError as error:
            return problem(status_of(error), error)
        except Stopped:
            return Response(status_code=499)
        return Response(found, media_type="application/json")

    return answer


def _closed(request: Request) -> Callable[[], Any]:
    async def closed() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    return closed


def to_json(answer: Answer) -> bytes:
    """Return an answer as it is sent."""
    return json.dumps(answer, separators=(",", ":"), allow_nan=False).encode("ascii")


def problem(status: int, error: TidelogError) -> Response:
    """Return an error as it is sent."""
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
    if isinstance(error, BrokerUnreachableError | BrokerError | ProtocolError | AuthenticationError | SecurityProtocolError):
        return 502
    return 409
