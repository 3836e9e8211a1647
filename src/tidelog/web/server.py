"""Runs the server on a socket until the process is interrupted, and ends its threads and responses."""

from __future__ import annotations

import ctypes
import errno
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address

from tidelog.errors import InvalidArgumentError, StorageError
from tidelog.extras import imported_from
from tidelog.web.context import Context
from tidelog.web.jobs import Jobs

LOOPBACK = "127.0.0.1"

MAX_CONNECTIONS = 200

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8

GRACE_S = 1
"""Seconds that open responses, such as a live tail, may take to end."""


class PageServer:
    """A bound server. `serve` runs it; `url` is its address with the token."""

    def __init__(self, context: Context, host: str = LOOPBACK, port: int = 0) -> None:
        self.context = context
        self.token = secrets.token_urlsafe(24)
        self._socket = _bound(host, port)
        self.port: int = self._socket.getsockname()[1]
        self._host = host
        self.is_loopback = is_loopback(host)

    @property
    def url(self) -> str:
        """The address for the browser, with the token."""
        shown = socket.gethostname() if self._host in ("0.0.0.0", "::", "") else self._host
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{self.port}/?token={self.token}"

    def serve(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until the process is interrupted or terminated. Raises MissingPackageError."""
        with imported_from("ui", "starlette or uvicorn"):
            import uvicorn

            from tidelog.web.app import make_app
        from tidelog.web.security import Guard

        _return_memory()
        jobs = Jobs()
        names = () if self.is_loopback else (socket.gethostname(), socket.getfqdn(), self._host)
        app = Guard(
            make_app(self.context, jobs),
            port=self.port,
            token=self.token,
            names=names,
            takes_addresses=not self.is_loopback,
        )
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            log_level="critical",  # Clients get their errors in responses, so they are not logged.
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=GRACE_S,
            h11_max_incomplete_event_size=32 * 1024,
        )
        server = uvicorn.Server(config)
        try:
            ready()
            server.run(sockets=[self._socket])
        finally:
            jobs.close()
            self.context.sources.close()
            self._socket.close()


def _return_memory() -> None:
    """Make glibc return large buffers to the system when they are freed. Otherwise glibc would keep them. Do nothing with other C
    libraries.
    """
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, 256 * 1024)
        library.mallopt(_M_ARENA_MAX, 2)


def is_loopback(host: str) -> bool:
    """Return whether a server on `host` is reachable only from this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(128)
        except BaseException:
            bound.close()
            raise
    except OSError as error:
        if isinstance(error, socket.gaierror):
            raise InvalidArgumentError(f"--host cannot be resolved: {error.strerror}", found=repr(host)) from None
        if error.errno == errno.EADDRINUSE:
            raise StorageError(
                f"port {port} of {host} is in use: choose another --port, or omit --port to use any free port"
            ) from None
        raise StorageError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    bound.set_inheritable(False)
    return bound
