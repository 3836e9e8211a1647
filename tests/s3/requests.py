"""What a client of S3 asks for, and answers that a test gives in the server's place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


@dataclass
class Request:
    """A request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    """By lower-case name."""
    sent_bytes: int = 0
    """Bytes of the answer's body that were sent to the client."""
    status: int = 0
    query: dict[str, str] = field(init=False)
    bucket: str = field(init=False)
    key: str = field(init=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.target)
        self.query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        self.bucket, _, self.key = unquote(parts.path).lstrip("/").partition("/")

    @property
    def kind(self) -> str:
        """LIST, or the method: GET, HEAD, PUT, POST, DELETE."""
        return "LIST" if self.method == "GET" and not self.key else self.method

    @property
    def range(self) -> tuple[int, int] | None:
        """The bytes [start, end) that are asked for; None for all of them."""
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        return (int(found[1]), int(found[2]) + 1) if found else None


@dataclass
class Answer:
    """An answer that does not come from the server."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    is_cut: bool = False
    """Whether the connection is reset after half of the body."""


class ResetError(Exception):
    """The connection is reset instead of an answer."""


@dataclass
class Body:
    """What is changed in the server's answer."""

    cut_after: float | None = None
    """The share of the body after which the connection is reset."""
    shortened_by: int = 0
    """How many bytes less the answer has, with a true Content-Length."""
    rewrite: Callable[[bytes], bytes] | None = None


Fault = Callable[[Request], Answer | Body | None]
"""Decides about one request, before it is forwarded. None forwards it. It may raise ResetError."""


def error(status: int, code: str) -> Fault:
    """Return a fault that answers with an error of S3's."""
    body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>of the test</Message></Error>'
    return lambda _: Answer(status, body.encode(), {"content-type": "application/xml"})


def reset(_: Request) -> Answer:
    raise ResetError


def half_body(_: Request) -> Body:
    return Body(cut_after=0.5)


def short_answer(_: Request) -> Body:
    return Body(shortened_by=1)


def without_key(key: str) -> Fault:
    """Return a fault by which listings miss an object."""
    missed = re.compile(
        rb"<Contents>(?:(?!</Contents>).)*<Key>" + re.escape(escape(key).encode()) + rb"</Key>.*?</Contents>", re.S
    )
    return lambda _: Body(rewrite=lambda body: missed.sub(b"", body))


def listing(objects: Iterable[tuple[str, int]]) -> Fault:
    """Return a fault that answers listings of any bucket with these keys and sizes, a thousand a page as S3 does."""
    every = sorted(objects)

    @cache
    def below(prefix: str, after: str) -> list[tuple[str, int]]:
        return [one for one in every if one[0].startswith(prefix) and one[0] > after]

    def answer(request: Request) -> Answer:
        prefix = request.query.get("prefix", "")
        begin = int(request.query.get("continuation-token", 0))
        page = min(int(request.query.get("max-keys", 1000)), 1000)
        found = below(prefix, request.query.get("start-after", ""))
        shown = found[begin : begin + page]
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>&quot;{_tag(key)}&quot;</ETag><Size>{size}</Size></Contents>"
            for key, size in shown
        )
        more = begin + page < len(found)
        token = f"<NextContinuationToken>{begin + page}</NextContinuationToken>" if more else ""
        body = (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{request.bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(shown)}</KeyCount>"
            f"<MaxKeys>{page}</MaxKeys><IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}</ListBucketResult>"
        )
        return Answer(200, body.encode(), {"content-type": "application/xml"})

    return answer


def served(folder: Path, prefix: str) -> Fault:
    """Return a fault that answers listings and reads below a prefix from a folder, at once: uploading thousands of files takes
    minutes.
    """
    files = {f"{prefix}/{file.relative_to(folder).as_posix()}": file for file in folder.rglob("*") if file.is_file()}
    list_them = listing((key, file.stat().st_size) for key, file in files.items())

    def answer(request: Request) -> Answer | Body | None:
        if request.kind == "LIST":
            return list_them(request)
        if request.key not in files:
            return error(404, "NoSuchKey")(request)
        size = files[request.key].stat().st_size
        start, end = request.range or (0, size)
        with files[request.key].open("rb") as file:
            file.seek(start)
            data = file.read(min(end, size) - start)
        fields = {"etag": f'"{_tag(request.key)}"', "last-modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        return Answer(206, data, fields | {"content-range": f"bytes {start}-{start + len(data) - 1}/{size}"})

    return answer


def _tag(key: str) -> str:
    return f"{hash(key) & 0xFFFFFFFF:032x}"
