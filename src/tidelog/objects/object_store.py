"""Sends requests to S3, Google Cloud Storage and Azure with `obstore`.

Every read has the ETag from the listing (`If-Match`), and the response's ETag and length are checked. So the bytes of an
overwritten object are never mixed with the bytes of its successor. `docs/decisions` says why this does not use `pyarrow.fs`,
which does not support ETags.

| failure | result |
|---|---|
| 500, 503, time-out, refused or broken connection | retried with growing pauses for RETRY_S |
| a body that is incomplete or has the wrong length | read again, ATTEMPTS times in all, then StorageError |
| 404, 412, a different ETag | SegmentChangedError: the object is gone, or has been overwritten |
| 401, 403, 400 with ExpiredToken | AuthenticationError |
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from tidelog.errors import (
    AuthenticationError,
    InvalidArgumentError,
    NotFoundError,
    SegmentChangedError,
    StorageError,
    TidelogError,
)
from tidelog.extras import imported_from
from tidelog.folder_path import HIDDEN
from tidelog.objects.address import Place
from tidelog.objects.listing import ObjectFacts
from tidelog.objects.settings import checked, s3_settings

logger = logging.getLogger("tidelog.objects")

ATTEMPTS = 5
RETRY_S = 30
SLOW_S = 3
"""Seconds without a response after which a warning names the address and endpoint."""
CONNECT_S = 10
READ_S = 30
"""Seconds for which a server may send nothing."""
REQUEST_S = 300

_Result = TypeVar("_Result")
_CODE = re.compile(r"<Code>([^<]+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<\n]+)")  # Azure appends lines with the request's identifiers.
_USER = re.compile(r"://[^/@\s]*@")
"""Matches a user name and a password in the URL of an endpoint."""
_STATUS = re.compile(r"\b(?:status|HTTP)[^0-9]{0,24}([45]\d\d [A-Z][A-Za-z ]+)")
_CREDENTIALS = ("ExpiredToken", "InvalidToken", "TokenRefreshRequired", "RequestExpired", "InvalidAccessKeyId", "AccessDenied",
                "SignatureDoesNotMatch", "AuthFailure", "AuthorizationFailure", "AuthenticationFailed",
                "RequestTimeTooSkewed")  # fmt: skip


def open_object_store(place: Place, options: Mapping[str, str], on_refused: Callable[[], None] = lambda: None) -> ObstoreStore:
    """Return a client for one bucket. `on_refused` is called when access is denied.

    Raises AuthenticationError, InvalidArgumentError, MissingPackageError.
    """
    with imported_from("objects", "obstore"):
        import obstore.store
    stores: Any = obstore.store
    client: dict[str, Any] = {"connect_timeout": f"{CONNECT_S}s", "read_timeout": f"{READ_S}s", "timeout": f"{REQUEST_S}s"}
    common = {"client_options": client, "retry_config": {"max_retries": 10, "retry_timeout": timedelta(seconds=RETRY_S)}}
    address = str(place._replace(prefix=""))
    if place.service == "s3":
        found, profile = s3_settings(options, place.bucket)
        client["allow_http"] = found.get("endpoint", "").startswith("http://")
        if profile is not None:
            found["credential_provider"] = _of_profile(profile)
        return ObstoreStore(_made(stores.S3Store, place.bucket, address, common | found), address, on_refused)
    own = {name: checked(name, value) for name, value in options.items() if not name.startswith("cache_")}
    client["allow_http"] = True  # For emulators: the services themselves have https URLs.
    if place.service == "gs":
        return ObstoreStore(_made(stores.GCSStore, place.bucket, address, common | own), address, on_refused)
    container, _, host = place.bucket.partition("@")
    account = {"account_name": host.partition(".")[0]} if host else {}
    return ObstoreStore(_made(stores.AzureStore, container, address, common | account | own), address, on_refused)


def _made(kind: Any, bucket: str, address: str, options: Mapping[str, Any]) -> Any:
    try:
        return kind(bucket, **options)
    except Exception as error:
        raise InvalidArgumentError(f"object storage cannot be opened: {_reason(error)}", found=address) from None


def _of_profile(profile: str) -> Any:
    """Return a credential provider for an AWS profile that refers to a role, a login or a program."""
    with imported_from("objects", "boto3"):
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    try:
        return Boto3CredentialProvider(boto3.Session(profile_name=None if profile == "default" else profile))
    except Exception as error:
        raise AuthenticationError(f"the AWS profile {profile!r} provides no credentials: {type(error).__name__}") from None


class ObstoreStore:
    """A client for one bucket. Errors show `address`."""

    def __init__(
        self,
        store: Any,
        address: str,
        on_refused: Callable[[], None] = lambda: None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._has_answered = False
        self._address = address
        self._on_refused = on_refused
        self._pause = pause

    def list(self, prefix: str, after: str | None = None) -> Iterable[tuple[str, ObjectFacts]]:
        from obstore import exceptions

        at = f"{self._address}/{prefix}" if prefix else self._address
        pages: Iterator[Any] | None = None
        last = after

        def page() -> Any:
            nonlocal pages
            if pages is None:  # After an error the iterator would just end. So start a new listing after the last key.
                pages = iter(self._store.list(f"{prefix}/" if prefix else None, offset=last, chunk_size=1000))
            try:
                return next(pages, None)
            except (exceptions.NotFoundError, FileNotFoundError):
                raise StorageError("the bucket does not exist", path=self._address) from None
            except BaseException:
                pages = None
                raise

        ends: tuple[str, str] | None = None
        while (found := self._tried(page, at)) is not None:
            if found and ends == (ends := (found[0]["path"], found[-1]["path"])):
                raise StorageError(
                    "the listing repeats itself: the server ignores the key after which it should continue", path=at
                )
            for one in found:
                modified: datetime = one["last_modified"]
                last = one["path"]
                yield last, ObjectFacts(one["size"], _ns(modified), (one["e_tag"] or "").strip('"'))

    def read(self, key: str, facts: ObjectFacts, start: int, end: int) -> memoryview:
        at = f"{self._address}/{key}"
        tag = facts.tag
        options: dict[str, Any] = {"range": (start, end)}
        if tag and not tag.startswith("W/"):
            options["if_match"] = f'"{tag}"'
        found = 0
        for attempt in range(ATTEMPTS):
            if attempt:
                self._pause(0.1 * 2**attempt)
            meta, data = self._tried(lambda: _got(self._store.get(key, options=options)), at)
            if meta["size"] != facts.size_bytes or (tag and (meta["e_tag"] or "").strip('"') not in ("", tag)):
                raise SegmentChangedError("an object was overwritten while it was being read", path=at)
            found = len(data)
            if found == end - start:
                return data
        raise StorageError(
            "a response has the wrong length", path=at, position=start, found=found, expected=f"{end - start} bytes"
        )

    def get(self, key: str) -> bytes:
        """Return a whole object. Raises NotFoundError, StorageError, AuthenticationError."""
        at = f"{self._address}/{key}"
        try:
            meta, data = self._tried(lambda: _got(self._store.get(key)), at)
        except SegmentChangedError:
            raise NotFoundError("an object is missing", path=at) from None
        if len(data) != meta["size"]:
            raise StorageError("a response has the wrong length", path=at, found=len(data), expected=f"{meta['size']} bytes")
        return bytes(data)

    def put(self, key: str, data: bytes | bytearray | memoryview) -> None:
        """Write a whole object. Raises StorageError, AuthenticationError."""
        self._tried(lambda: self._store.put(key, bytes(data)), f"{self._address}/{key}")

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects. Missing objects are ignored. Raises StorageError, AuthenticationError."""
        for key in keys:
            with suppress(SegmentChangedError):
                self._tried(partial(self._store.delete, key), f"{self._address}/{key}")

    def _tried(self, ask: Callable[[], _Result], at: str) -> _Result:
        if self._has_answered:
            return self._asked(ask, at)
        timer = threading.Timer(SLOW_S, self._tell_of_wait)
        timer.daemon = True
        timer.start()
        try:
            found = self._asked(ask, at)
            self._has_answered = True
            return found
        finally:
            timer.cancel()

    def _tell_of_wait(self) -> None:
        endpoint = (getattr(self._store, "config", None) or {}).get("endpoint")
        where = f" at {_USER.sub(f'://{HIDDEN}@', endpoint)}" if endpoint else ""
        logger.warning("%s%s has not answered yet: retrying for up to %s seconds", self._address, where, RETRY_S)

    def _asked(self, ask: Callable[[], _Result], at: str) -> _Result:
        from obstore import exceptions

        for attempt in range(ATTEMPTS):
            try:
                return ask()
            except (exceptions.NotFoundError, FileNotFoundError):
                raise SegmentChangedError("an object has been deleted", path=at) from None
            except exceptions.PreconditionError:
                raise SegmentChangedError("an object was overwritten while it was being read", path=at) from None
            except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
                raise self._refused(_reason(error), at) from None
            except TidelogError:
                raise
            except Exception as error:
                reason = _reason(error)
                if any(code in reason for code in _CREDENTIALS):
                    raise self._refused(reason, at) from None
                if not _is_broken_body(error) or attempt == ATTEMPTS - 1:
                    raise StorageError(f"object storage failed: {reason}", path=at) from None
                self._pause(0.1 * 2**attempt)
        raise AssertionError

    def _refused(self, reason: str, at: str) -> AuthenticationError:
        self._on_refused()
        return AuthenticationError(f"object storage denied access: {reason}", path=at)


def _got(result: Any) -> tuple[Any, memoryview]:
    return result.meta, memoryview(result.bytes())


def _is_broken_body(error: Exception) -> bool:
    """Return whether a response's body was cut short. The library retries failures before the body, but not these."""
    return "error decoding response body" in repr(error) or "Wrapped" in repr(error) or "body" in str(error)


def _reason(error: Exception) -> str:
    """Return an error's cause in one line. The error's full text is long, and has the request's URL and identifiers."""
    text = str(error)
    code, message, status = _CODE.search(text), _MESSAGE.search(text), _STATUS.search(text)
    parts = [one[1] for one in (code, message) if one is not None] or ([status[1]] if status else [])
    if not parts:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        parts = [re.sub(r"^Generic \w+ error: ", "", lines[0])[:300]] if lines else [type(error).__name__]
    return _USER.sub(f"://{HIDDEN}@", ": ".join(part.strip() for part in parts))


def _ns(time: datetime) -> int:
    return int(time.timestamp()) * 1_000_000_000 + time.microsecond * 1000
