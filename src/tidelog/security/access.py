"""The TLS context and the SASL credentials for the connections to one cluster, created once and shared by all of them.

| | cached |
|---|---|
| the TLS context | until one of its files changes: certificates may be renewed while a stream runs |
| a token from an endpoint | for at most four fifths of the lifetime that the endpoint states |
"""

from __future__ import annotations

import time
from typing import Protocol

from tidelog.errors import AuthenticationError, InvalidArgumentError
from tidelog.security.client_config import IN_PLAIN_TEXT, ClientConfig, OAuthSettings, SaslSettings
from tidelog.security.oauth_bearer import OAuthBearerClient, unsecured_token
from tidelog.security.plain import PLAIN, PlainClient
from tidelog.security.scram import ScramClient
from tidelog.security.secret import Secret
from tidelog.security.tls_context import ContextSource, client_context

KEPT_SHARE = 0.8


class SaslClient(Protocol):
    """The client side of one SASL exchange."""

    mechanism: str

    def first(self) -> bytes:
        """Return the first message."""

    def respond(self, challenge: bytes) -> bytes | None:
        """Return the response to a challenge, None after the last challenge. Raises AuthenticationError."""


class Access:
    """The TLS context and SASL credentials of one cluster. Use it only on the thread that uses the cluster."""

    def __init__(self, config: ClientConfig = IN_PLAIN_TEXT) -> None:
        self.config = config
        self.tls = None if config.tls is None else ContextSource(config.tls, client_context)
        self._token: Secret | None = None
        self._token_until_s = 0.0

    def sasl_client(self) -> SaslClient | None:
        """Return a new SASL exchange, None if the protocol is not SASL. Raises AuthenticationError if no token is available."""
        sasl = self.config.sasl
        if sasl is None:
            return None
        if sasl.oauth is not None:
            return OAuthBearerClient(self._oauth_token(sasl.oauth))
        return _with_password(sasl)

    def _oauth_token(self, oauth: OAuthSettings) -> Secret:
        if oauth.callback is not None:
            return _from_callback(oauth)
        if oauth.unsecured_name is not None:
            return unsecured_token(oauth.unsecured_name, time.time(), oauth.unsecured_lifetime_s, oauth.scope)
        now_s = time.monotonic()
        if self._token is None or now_s >= self._token_until_s:
            from tidelog.security.token_endpoint import fetch_token  # urllib takes long to import.

            self._token, lifetime_s = fetch_token(oauth)
            self._token_until_s = now_s + KEPT_SHARE * lifetime_s
        return self._token


def _with_password(sasl: SaslSettings) -> SaslClient:
    if sasl.mechanism == PLAIN:
        return PlainClient(sasl.username, sasl.password)
    return ScramClient(sasl.mechanism, sasl.username, sasl.password, token_auth=sasl.token_auth)


def _from_callback(oauth: OAuthSettings) -> Secret:
    assert oauth.callback is not None
    try:
        found = oauth.callback(oauth.callback_config)
    except Exception as error:
        raise AuthenticationError(f"the function oauth_cb failed: {type(error).__name__}") from error
    token = found[0] if isinstance(found, tuple) and found else found
    if not isinstance(token, str) or not token:
        raise InvalidArgumentError("oauth_cb must return a token, or a token and its expiry time", found=type(found).__name__)
    return Secret(token)
