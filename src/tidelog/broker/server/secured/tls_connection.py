"""A connection with TLS: it does the handshake step by step on other threads, and reads all that OpenSSL has decrypted.

The loop watches the socket, but not OpenSSL's buffers. Therefore the connection checks whether decrypted bytes are left
(`_look_again`), after each read and whenever reading may continue.
"""

from __future__ import annotations

import socket
import ssl
from typing import cast

from tidelog.broker.net.bulk_sender import LARGE_BYTES
from tidelog.broker.net.tls_socket import TlsSocket
from tidelog.broker.server.answer_writer import first_part
from tidelog.broker.server.connection import Connection
from tidelog.broker.server.connection_server import ConnectionServer
from tidelog.broker.settings.broker_config import Listener
from tidelog.errors import TidelogError
from tidelog.records.kernel import is_in_memory
from tidelog.security.distinguished_name import subject_name
from tidelog.security.principal import PrincipalRules
from tidelog.wire.codec import Bytes

_ALERT_S = 1.0
"""How long a peer has to receive the alert, in seconds."""


class TlsConnection(Connection):
    """A connection that does a TLS handshake before it reads, and checks for decrypted bytes after each read."""

    __slots__ = ("_is_looking", "_is_read", "_is_shaken", "_rules", "_tls")

    def __init__(
        self,
        server: ConnectionServer,
        tls: TlsSocket,
        connection_id: int,
        peer_host: str,
        listener: Listener,
        rules: PrincipalRules,
    ) -> None:
        self._tls = tls
        self._rules = rules
        self._is_shaken = False
        self._is_looking = False
        self._is_read = False
        """Whether the bytes to be sent next have just been read from the disk."""
        super().__init__(server, cast("socket.socket", tls), connection_id, peer_host, listener)

    def close_copy(self) -> None:
        self._tls.abandon()

    # --- the handshake

    def _step(self) -> None:
        if self.is_closed:
            return
        self._loop.remove_reader(self.fd)
        self._loop.remove_writer(self.fd)
        self._tls.is_stepping = True
        self._server.shaking.add(self._tls)
        self._server.handshakes.run(self._tls.step, self._stepped)

    def _stepped(self, result: str | BaseException | None) -> None:
        self._server.shaking.discard(self._tls)
        if not self._tls.stepped() or self.is_closed:
            return
        if isinstance(result, BaseException):
            if isinstance(result, ssl.SSLError | TidelogError):
                reason = getattr(result, "reason", None) or str(result)
                self.count_refusal(f"the TLS handshake failed: {reason}")
            self._tls.fail()
            self._leave_with_the_alert()
        elif result == "write":
            self._loop.add_writer(self.fd, self._step)
        elif result == "read":
            self._loop.add_reader(self.fd, self._on_readable)
        else:
            self._is_shaken = True
            # If SASL authenticates the client, the rules for certificate names do not apply, as in Kafka.
            certificate = self._tls.peer_certificate() if self._guard is None else None
            if certificate is not None:
                try:
                    self.principal = self._rules.principal(subject_name(certificate))
                except TidelogError as error:
                    self.count_refusal(error.message)
                    self._leave_with_the_alert()
                    return
            self._loop.add_reader(self.fd, self._on_readable)
            self._look_again()

    def _leave_with_the_alert(self) -> None:
        """Close once the peer's system has received the alert: with TLS 1.3, a client's first request may already be on its
        way.
        """
        self._loop.call_later(_ALERT_S, self.close)
        self._leave()

    # --- writing: the loop encrypts. It sends large responses; `BulkSender` only reads from the disk

    def _put(self, chunks: list[Bytes], size: int) -> bool:
        try:
            sealed = self._tls.sealed(chunks)
        except OSError:
            self.close()
            return False
        if sealed is None:
            return self._write_now(chunks, size)
        self._queued = self._answers.put(self.fd, [sealed], len(sealed))
        self._counters.sent_bytes += size
        return True

    def _take_back(self, data: bytes) -> None:
        self._tls.keep_sealed(data)
        super()._take_back(b"")  # The bytes are kept encrypted.
        self._hold_bytes(len(data))

    def _hand_over(self, chunks: list[Bytes]) -> bool:
        first = first_part(chunks)
        if self._is_read or sum(map(len, first)) < LARGE_BYTES or is_in_memory(first):
            self._is_read = False
            return False
        self._is_handed_over = self._server.bulk.read(first, self._on_handed_back)
        if self._is_handed_over:
            self._unsent = chunks
        return self._is_handed_over

    def _on_handed_back(self, sent: int, error: int) -> None:
        self._is_read = True  # Even if memory is so short that it was dropped again.
        super()._on_handed_back(sent, error)

    # --- reading

    def _on_readable(self) -> None:
        if self._is_shaken:
            super()._on_readable()
        else:
            self._step()

    def _receive(self) -> bool:
        if self._queued and not self._is_settled():  # Reading can make OpenSSL send, and these bytes go first.
            return False
        has_received = super()._receive()
        self._look_again()
        return has_received

    def _go_on(self) -> None:
        super()._go_on()
        self._look_again()

    def _resume(self) -> None:
        super()._resume()
        self._look_again()

    def _look_again(self) -> None:
        if self._is_looking or self.is_closed or self._is_held or self.is_waiting or self._unsent or not self._is_reading:
            return
        if self._tls.pending:
            self._is_looking = True
            self._loop.call_soon(self._looked)

    def _looked(self) -> None:
        self._is_looking = False
        if not self.is_closed and self._is_reading:
            self._on_readable()
