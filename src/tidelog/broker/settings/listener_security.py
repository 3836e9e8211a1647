"""The security settings of one listener: its protocol, TLS context, SASL mechanisms, users and passwords.

A property is looked up as `listener.name.<name>.<property>`, then without the prefix, as in Kafka. JAAS settings need the prefix:

| property | |
|---|---|
| `ssl.keystore.…`, `ssl.truststore.…` and the other `ssl.*` of `security.tls_settings` | changed files are read again |
| `ssl.client.auth` | none, requested, required |
| `ssl.principal.mapping.rules` | rules that map a client certificate's name to a principal |
| `sasl.enabled.mechanisms` | PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER |
| `sasl.oauthbearer.…` | the issuer that signs tokens (`security.signed_tokens`); without it, unsecured tokens are accepted |
| `listener.name.<name>.<mechanism>.sasl.jaas.config` | the login module; for PLAIN it contains the users: `user_alice="…"` |
| `connections.max.reauth.ms` | how long a session lasts; 0: forever. A mechanism may have its own value |
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol

from tidelog.broker.requests.listeners import Listener
from tidelog.errors import InvalidArgumentError
from tidelog.security.client_config import MECHANISMS, PLAINTEXT, SASL_PLAINTEXT, SASL_SSL, SSL
from tidelog.security.jaas import parse_jaas
from tidelog.security.oauth_bearer import OAUTHBEARER, OAuthBearerServer
from tidelog.security.plain import PLAIN, PlainServer
from tidelog.security.principal import PrincipalRules
from tidelog.security.scram import ScramCredential, ScramServer
from tidelog.security.scram_disguise import KnownUser, ScramDisguise
from tidelog.security.secret import Secret
from tidelog.security.signed_tokens import URL, SignedTokens, token_rules
from tidelog.security.tls_context import CLIENT_AUTH, NONE, ContextSource, server_context
from tidelog.security.tls_settings import TLS_PROPERTIES, TlsSettings, tls_settings
from tidelog.security.token_endpoint import fetch_keys

FindCredential = Callable[[str, str], ScramCredential | None]
"""Returns a user's stored credential, by mechanism and user name."""

REFUSED: Final = ("sasl.server.callback.handler.class", "ssl.engine.factory.class")
"""Properties that name a Java class which checks passwords, certificates or tokens; listeners may not set them."""

_VALIDATOR = re.compile(r"org\.apache\.kafka\.common\.security\.oauthbearer\.(?:secured\.)?OAuthBearerValidatorCallbackHandler")
"""Kafka's own validator of signed tokens; `signed_tokens` replaces it here."""

USER_OPTION: Final = "user_"


class SaslServer(Protocol):
    """The server side of one SASL exchange."""

    name: str | None
    is_complete: bool

    def evaluate(self, response: bytes) -> bytes:
        """Return the reply to a client's message. Raises AuthenticationError if the client fails."""


class ListenerSecurity:
    """The security settings of a listener's connections. Raises InvalidArgumentError for settings that cannot work, before any
    client connects.
    """

    def __init__(
        self,
        listener: Listener,
        given: Mapping[str, str],
        find_credential: FindCredential,
        known_users: Callable[[], Iterable[KnownUser]] = tuple,
    ) -> None:
        self._prefix = f"listener.name.{listener.name.lower()}."
        self._given = given
        self._find = find_credential
        self._disguise = ScramDisguise(known_users)
        self.tls: ContextSource | None = None
        self.rules = PrincipalRules(self._text("ssl.principal.mapping.rules") or "DEFAULT")
        self.mechanisms: tuple[str, ...] = ()
        self.sessions_ms: dict[str, int] = {}
        self._refuse(listener)
        if listener.protocol in (SSL, SASL_SSL):
            self.tls = self._tls()
            self.tls.get()
        if listener.protocol in (SASL_PLAINTEXT, SASL_SSL):
            self.mechanisms = self._enabled(listener)
            self.sessions_ms = {one: self._session_ms(one) for one in self.mechanisms}
            self._users = self._plain_users() if PLAIN in self.mechanisms else {}
            rules = token_rules(self._tokens_text) if OAUTHBEARER in self.mechanisms else None
            self._tokens = None if rules is None else SignedTokens(rules, fetch_keys)

    def sasl_server(self, mechanism: str) -> SaslServer:
        """Return a new server-side exchange for an enabled mechanism."""
        if mechanism == PLAIN:
            return PlainServer(self._users)
        if mechanism == OAUTHBEARER:
            return OAuthBearerServer(time.time, None if self._tokens is None else self._tokens.judge)
        return ScramServer(mechanism, partial(self._find, mechanism), partial(self._disguise.credential, mechanism))

    def _refuse(self, listener: Listener) -> None:
        """Raise InvalidArgumentError for properties that name a Java class, or that require stricter checks than those done
        here.
        """
        for name, value in self._given.items():
            bare = name.removeprefix(self._prefix)
            if bare == f"{OAUTHBEARER.lower()}.{REFUSED[0]}" and _VALIDATOR.fullmatch(value) and self._tokens_text(URL):
                continue
            if value and (bare.endswith(REFUSED) and not bare.startswith("listener.name.")):
                raise InvalidArgumentError(f"listener {listener.name} cannot be secured by {name}, which is not supported here")

    def _text(self, name: str) -> str:
        return self._given.get(self._prefix + name, self._given.get(name, "")).strip()

    def _session_ms(self, mechanism: str) -> int:
        """Return how long a session lasts, in ms. A mechanism may have its own value, with the listener prefix."""
        name = "connections.max.reauth.ms"
        own = f"{mechanism.lower()}.{name}"
        return self._number(own if f"{self._prefix}{own}" in self._given else name)

    def _tokens_text(self, name: str) -> str:
        """Return the value of an OAUTHBEARER property. The property with the mechanism as prefix takes precedence."""
        return self._given.get(f"{self._prefix}{OAUTHBEARER.lower()}.{name}", "").strip() or self._text(name)

    def _number(self, name: str) -> int:
        text = self._text(name) or "0"
        if not text.isdigit():
            raise InvalidArgumentError(f"{name} must be a whole number", found=repr(text), expected="milliseconds")
        return int(text)

    def _tls(self) -> ContextSource:
        auth = self._text("ssl.client.auth").lower() or NONE
        if auth not in CLIENT_AUTH:
            raise InvalidArgumentError("ssl.client.auth has an unknown value", found=auth, expected=", ".join(CLIENT_AUTH))
        settings = tls_settings({name: text for name in TLS_PROPERTIES if (text := self._text(name))})

        def make(settings: TlsSettings) -> ssl.SSLContext:
            return server_context(settings, auth)

        return ContextSource(settings, make)

    def _enabled(self, listener: Listener) -> tuple[str, ...]:
        words = [word.strip().upper() for word in self._text("sasl.enabled.mechanisms").split(",") if word.strip()]
        if not words:
            raise InvalidArgumentError(
                f"listener {listener.name} has no SASL mechanism",
                expected=f"sasl.enabled.mechanisms with some of {', '.join(MECHANISMS)}",
            )
        for word in words:
            if word not in MECHANISMS:
                raise InvalidArgumentError(
                    "sasl.enabled.mechanisms has an unsupported mechanism",
                    found=word,
                    expected=f"some of {', '.join(MECHANISMS)}",
                )
        return tuple(dict.fromkeys(words))

    def _plain_users(self) -> dict[str, Secret]:
        name = f"{self._prefix}{PLAIN.lower()}.sasl.jaas.config"
        text = self._given.get(name)
        if not text:
            raise InvalidArgumentError(
                f"the mechanism PLAIN needs users: set {name}", expected='…PlainLoginModule required user_alice="…";'
            )
        options = parse_jaas(text, name).options
        return {one.removeprefix(USER_OPTION): value for one, value in options.items() if one.startswith(USER_OPTION)}


def check_secured(listeners: Iterable[Listener], given: Mapping[str, str]) -> None:
    """Raise InvalidArgumentError if a listener cannot be served. This runs before a data folder is opened or created."""
    for listener in listeners:
        if listener.protocol != PLAINTEXT:
            ListenerSecurity(listener, given, lambda mechanism, name: None)
