"""A client for schema registries with Confluent's REST API: Confluent Schema Registry, Karapace, Redpanda and Apicurio
(`/apis/ccompat/v7`).

| property | environment | |
|---|---|---|
| `schema.registry.url`, `url` | SCHEMA_REGISTRY_URL | several URLs, separated by commas, are tried in turn |
| `basic.auth.user.info` | SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO | `user:password`; or in the URL |
| `bearer.auth.token` | SCHEMA_REGISTRY_BEARER_AUTH_TOKEN | |
| `ssl.*`, also with the prefix `schema.registry.` | | as for brokers (`security.tls_settings`), in PEM |

Responses are cached, because the schema with an id never changes. The time of a request, the size of a response and the number of
references are limited. Redirects are not followed, so that no other server gets credentials. No message contains credentials.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import time
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit

from tidelog.decoding.framing import ID_BYTES
from tidelog.errors import InvalidArgumentError, SchemaRegistryError
from tidelog.near_names import did_you_mean
from tidelog.security.oauth_bearer import without_user
from tidelog.security.secret import Secret
from tidelog.security.tls_context import client_context
from tidelog.security.tls_settings import TLS_PROPERTIES, tls_settings

TIMEOUT_S: Final = 10.0
MAX_ANSWER_BYTES: Final = 16 << 20
MAX_CACHED: Final = 2_000
MAX_REFERENCES: Final = 500
MAX_UNKNOWN: Final = 100
"""After this many unknown ids, no more requests are sent, because the bytes are probably not ids."""

_PREFIX: Final = "schema.registry."
_OWN: Final = frozenset(
    {"url", "basic.auth.user.info", "basic.auth.credentials.source", "bearer.auth.token", "bearer.auth.credentials.source"}
)
_NOT_FOUND: Final = 404


class Schema(NamedTuple):
    """A schema as the registry returns it."""

    kind: str
    """AVRO, PROTOBUF or JSON."""
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """The name and text of each schema that this schema refers to, directly or indirectly. Each comes after the schemas that it
    refers to itself.
    """
    path: str | None = None
    """The file from which the schema was read; None if it is from a registry."""
    message: str | None = None
    """The name of the Protobuf message; None means the first message."""


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class SchemaRegistry:
    """A registry with a URL and properties. It connects at the first request. Pickling includes the credentials.

    Raises InvalidArgumentError for wrong properties; all requests raise SchemaRegistryError.
    """

    def __init__(self, url: str | None = None, properties: Mapping[str, str] | None = None) -> None:
        self._given = (url, dict(properties or {}))
        given = {name.removeprefix(_PREFIX): str(value) for name, value in self._given[1].items()}
        for name in given:
            if name not in _OWN and name not in TLS_PROPERTIES:
                raise InvalidArgumentError(
                    f"unknown property of a schema registry: {name}{did_you_mean(name, _OWN | TLS_PROPERTIES)}"
                )
        addresses = url or given.get("url") or ""
        self.urls = [one.strip().rstrip("/") for one in addresses.split(",") if one.strip()]
        for one in self.urls:
            if urlsplit(one).scheme not in ("http", "https") or not urlsplit(one).hostname:
                raise InvalidArgumentError(
                    "invalid URL of a schema registry", found=repr(without_user(one)), expected="http://… or https://…"
                )
        if not self.urls:
            raise InvalidArgumentError("the URL of the schema registry is missing: pass `url`")
        self._user_info = Secret(given.get("basic.auth.user.info", ""))
        self._token = Secret(given.get("bearer.auth.token", ""))
        self._tls = tls_settings({name: value for name, value in given.items() if name in TLS_PROPERTIES})
        self._opener: urllib.request.OpenerDirector | None = None
        self._cache: OrderedDict[str, Any] = OrderedDict()
        self._unknown = 0

    @classmethod
    def from_environment(
        cls, url: str | None = None, properties: Mapping[str, str] | None = None, environment: Mapping[str, str] = os.environ
    ) -> SchemaRegistry | None:
        """Return the registry that the arguments or the environment variables name; None if neither names one. Arguments take
        precedence.
        """
        given = {name.removeprefix(_PREFIX): value for name, value in (properties or {}).items()}
        url = url or given.pop("url", None) or environment.get("SCHEMA_REGISTRY_URL")
        if not url:
            if given:
                raise InvalidArgumentError(
                    "the URL of the schema registry is missing: pass schema.registry.url, or set SCHEMA_REGISTRY_URL"
                )
            return None
        for name, variable in (
            ("basic.auth.user.info", "SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO"),
            ("bearer.auth.token", "SCHEMA_REGISTRY_BEARER_AUTH_TOKEN"),
        ):
            if environment.get(variable):
                given.setdefault(name, environment[variable])
        return cls(url, given)

    def __reduce__(self) -> tuple[Any, ...]:
        return SchemaRegistry, self._given

    def by_key(self, key: bytes) -> Schema | None:
        """Return the schema whose id is in the first bytes of a value (`framing`), or None if the registry does not know
        the id.
        """
        if len(key) == ID_BYTES:
            path = f"/schemas/ids/{int.from_bytes(key[1:], 'big')}"
        else:
            guid = key[1:].hex()
            path = f"/schemas/guids/{'-'.join((guid[:8], guid[8:12], guid[12:16], guid[16:20], guid[20:]))}"
        if self._unknown >= MAX_UNKNOWN and path not in self._cache:
            return None
        found = self._schema(path)
        self._unknown += found is None
        return found

    def latest(self, subject: str) -> Schema | None:
        """Return the newest schema of a subject, None if there is no such subject."""
        return self._schema(f"/subjects/{quote(subject, safe='')}/versions/latest")

    def _schema(self, path: str) -> Schema | None:
        return self._cached(f"schema {path}", lambda: self._resolved(path))  # type: ignore[no-any-return]

    def _resolved(self, path: str) -> Schema | None:
        answer = self._answer(path)
        if answer is None:
            return None
        text, kind = answer.get("schema"), answer.get("schemaType") or "AVRO"
        if not isinstance(text, str) or not isinstance(kind, str):
            raise self._error(path, "returned something that is not a schema")
        found: dict[str, str] = {}
        self._collect(answer, path, found, set())
        return Schema(kind.upper(), text, tuple(found.items()))

    def _collect(self, answer: Mapping[str, Any], path: str, found: dict[str, str], visited: set[str]) -> None:
        """Add the schemas that a schema refers to, directly or indirectly, to `found`. The deepest come first."""
        for one in answer.get("references") or ():
            try:
                name, subject, version = str(one["name"]), str(one["subject"]), int(one["version"])
            except (KeyError, TypeError, ValueError):
                raise self._error(path, "returned a malformed reference") from None
            place = f"/subjects/{quote(subject, safe='')}/versions/{version}"
            if place in visited:
                continue
            visited.add(place)
            if len(visited) > MAX_REFERENCES:
                raise self._error(path, f"has a schema with more than {MAX_REFERENCES} references")
            referenced = self._answer(place)
            if referenced is None or not isinstance(referenced.get("schema"), str):
                raise self._error(place, "lacks a schema that another schema refers to")
            self._collect(referenced, place, found, visited)
            found[name] = referenced["schema"]

    def _cached(self, key: str, make: Callable[[], Any]) -> Any:
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key]
        value = self._cache[key] = make()
        if len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)
        return value

    def _answer(self, path: str) -> dict[str, Any] | None:
        return self._cached(path, lambda: self._asked(path))  # type: ignore[no-any-return]

    def _asked(self, path: str) -> dict[str, Any] | None:
        failure: SchemaRegistryError | None = None
        for url in self.urls:
            try:
                return self._asked_at(url, path)
            except SchemaRegistryError as error:
                failure = failure or error
        assert failure is not None
        raise failure

    def _asked_at(self, url: str, path: str) -> dict[str, Any] | None:
        user, at, host = urlsplit(url).netloc.rpartition("@")
        place = urlsplit(url)._replace(netloc=host).geturl() + path
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        credentials = unquote(user) if at else self._user_info.reveal()
        if credentials:
            headers["Authorization"] = "Basic " + base64.b64encode(credentials.encode()).decode()
        elif self._token:
            headers["Authorization"] = f"Bearer {self._token.reveal()}"
        try:
            body = self._fetched(urllib.request.Request(place, headers=headers))
        except HTTPError as error:
            with error:
                if error.code == _NOT_FOUND:
                    return None
                what = "refused the credentials" if error.code in (401, 403) else "returned an error"
                raise self._error(place, what, found=f"HTTP status {error.code}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            # Some of urllib's errors contain the whole request.
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
            if TimeoutError in (type(error), type(reason)):
                reason = f"no answer within {TIMEOUT_S:.0f} seconds"
            raise self._error(place, f"cannot be reached: {reason}") from None
        if len(body) > MAX_ANSWER_BYTES:
            raise self._error(place, f"returned more than {MAX_ANSWER_BYTES >> 20} MiB")
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise self._error(place, "returned something that is not a JSON object: is this a schema registry?")
        return answer

    def _fetched(self, request: urllib.request.Request) -> bytes:
        if self._opener is None:
            https = urllib.request.HTTPSHandler(context=client_context(self._tls))
            self._opener = urllib.request.build_opener(_NoRedirection, https)
        end = time.monotonic() + TIMEOUT_S
        body = bytearray()
        with self._opener.open(request, timeout=TIMEOUT_S) as answer:
            while len(body) <= MAX_ANSWER_BYTES and (piece := answer.read1(1 << 16)):
                body += piece
                if time.monotonic() > end:
                    raise TimeoutError("timed out")
        return bytes(body)

    def _error(self, place: str, what: str, found: str | None = None) -> SchemaRegistryError:
        return SchemaRegistryError(f"the schema registry {what}", path=without_user(place), found=found)
