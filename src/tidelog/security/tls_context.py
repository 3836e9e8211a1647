"""TLS contexts for clients and servers, rebuilt when one of their files changes.

Contexts use TLS 1.2 and 1.3, without compression or renegotiation, with the ciphers in `tls_settings`. A key given as text is
never in a file that other users can open: OpenSSL reads the key from memory that only this process can name, or from a file that
is removed at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from typing import Final

from tidelog.errors import InvalidArgumentError
from tidelog.security.tls_settings import TlsSettings, not_pem

logger = logging.getLogger("tidelog.security")

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_JKS: Final = b"\xfe\xed\xfe\xed"
_DER: Final = 0x30
_HEAD_BYTES: Final = 4
_MOST_BYTES: Final = 1 << 20

NONE, REQUESTED, REQUIRED = "none", "requested", "required"
CLIENT_AUTH: Final = {NONE: ssl.CERT_NONE, REQUESTED: ssl.CERT_OPTIONAL, REQUIRED: ssl.CERT_REQUIRED}
"""`ssl.client.auth`."""


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return a client's context. Raises InvalidArgumentError, which names the invalid file."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    context.check_hostname = settings.checks_host and settings.verifies
    context.verify_mode = ssl.CERT_REQUIRED if settings.verifies else ssl.CERT_NONE
    if settings.trust_file is None and settings.trust_pem is None:
        context.load_default_certs()
    if settings.has_key:
        _load_key(context, settings)
    return context


def server_context(settings: TlsSettings, client_auth: str = NONE) -> ssl.SSLContext:
    """Return a server's context; `client_auth` is the value of `ssl.client.auth`. Raises InvalidArgumentError."""
    if not settings.has_key:
        raise InvalidArgumentError("a listener with TLS needs ssl.keystore.location, or ssl.keystore.certificate.chain and ….key")
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    context.verify_mode = CLIENT_AUTH[client_auth]
    _load_key(context, settings)
    return context


class ContextSource:
    """The context for some settings, built on first use and rebuilt when one of their files changes.

    If the changed files cannot be used, for example because they are half written, the old context stays in use until the files
    change again, and the reason is logged.
    """

    def __init__(self, settings: TlsSettings, make: Callable[[TlsSettings], ssl.SSLContext]) -> None:
        self.settings = settings
        self._make = make
        self._stamp: tuple[object, ...] | None = None
        self._context: ssl.SSLContext | None = None

    def get(self) -> ssl.SSLContext:
        """Return the context for the current files. Raises InvalidArgumentError if no context has been built yet and none
        can be built.
        """
        stamp = tuple(_stamp(file) for file in self.settings.files)
        context = self._context
        if context is None:
            context = self._make(self.settings)
        elif stamp != self._stamp:
            try:
                context = self._make(self.settings)
            except InvalidArgumentError as error:
                logger.warning("the new certificates cannot be used, so the old ones stay in use: %s", error)
        self._context = context
        self._stamp = stamp
        return context


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _context(kind: int, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(kind)
    versions = [_VERSIONS[one] for one in settings.protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_SINGLE_ECDH_USE
    if settings.ciphers:
        context.set_ciphers(settings.ciphers)
    try:
        if settings.trust_pem is not None:
            context.load_verify_locations(cadata=settings.trust_pem)
        elif settings.trust_file is not None:
            _check_pem(settings.trust_file, "ssl.truststore.location")
            if os.path.isdir(settings.trust_file):  # noqa: PTH112
                context.load_verify_locations(capath=settings.trust_file)
            else:
                context.load_verify_locations(cafile=settings.trust_file)
    except ssl.SSLError:
        raise InvalidArgumentError("the file has no trusted certificates in PEM", path=settings.trust_file) from None
    except OSError as error:
        raise _unreadable(error, settings.trust_file) from None
    return context


def _load_key(context: ssl.SSLContext, settings: TlsSettings) -> None:
    password = settings.key_password.reveal() if settings.key_password is not None else ""
    with contextlib.ExitStack() as opened:
        chain, key = settings.chain_file, settings.key_file
        if chain is not None:
            _check_pem(chain, "ssl.keystore.location")
        else:
            assert settings.chain_pem is not None and settings.key_pem is not None
            text = f"{settings.key_pem.reveal().rstrip()}\n{settings.chain_pem}"
            chain = opened.enter_context(_in_memory(text.encode()))
        place = settings.chain_file or "ssl.keystore.certificate.chain"
        try:
            # Without a password OpenSSL would ask for one on the terminal, so a password is always passed.
            context.load_cert_chain(chain, key, password)
        except ssl.SSLError:
            why = (
                "ssl.key.password does not decrypt the key"
                if _is_locked(key or chain)
                else "the file is not a certificate and its key in PEM"
            )
            raise InvalidArgumentError(why, path=key or place) from None
        except OSError as error:
            raise _unreadable(error, settings.chain_file if error.filename is None else str(error.filename)) from None


def _is_locked(path: str) -> bool:
    """Whether a file contains an encrypted key. OpenSSL's error does not show it."""
    with contextlib.suppress(OSError), open(path, "rb") as file:  # noqa: PTH123
        return b"ENCRYPTED" in file.read(_MOST_BYTES)
    return False


def _check_pem(path: str, name: str) -> None:
    if os.path.isdir(path):  # noqa: PTH112
        return
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise _unreadable(error, path) from None
    if head == _JKS:
        raise not_pem(name, "JKS", path)
    if head[:1] == bytes([_DER]):
        raise not_pem(name, "PKCS12", path)


def _unreadable(error: OSError, path: str | None) -> InvalidArgumentError:
    return InvalidArgumentError(f"cannot read a certificate file: {error.strerror}", path=path)


@contextlib.contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """Yield a path at which only this process can read `data`."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):  # noqa: PTH112
        descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:  # Only its owner can open it.
        file.write(data)
        file.flush()
        yield file.name
