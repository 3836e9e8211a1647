"""How one listener is secured: its protocol, the context of TLS, mechanisms of SASL, users and their passwords.

A property is looked for as `listener.name.<name>.<property>`, then without it, as in Kafka. Login modules have no default:

| property | |
|---|---|
| `ssl.keystore.…`, `ssl.truststore.…` and the other `ssl.*` of `security.tls_settings` | files are read again when they change |
| `ssl.client.auth` | none, requested, required |
| `ssl.principal.mapping.rules` | what the name of a client's certificate becomes |
| `sasl.enabled.mechanisms` | PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER |
| `sasl.oauthbearer.…` | who signs tokens (`security.signed_tokens`); without it unsecured ones are taken |
| `listener.name.<name>.<mechanism>.sasl.jaas.config` | the module; PLAIN's has the users: `user_alice="…"` |
| `connections.max.reauth.ms` | how long a session lasts; 0: forever. A mechanism may have its own |
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol

from tidelog.broker.server.listeners import Listener
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
"""A mechanism and a user's name → what is kept of the password."""

REFUSED: Final = ("sasl.server.callback.handler.class", "ssl.engine.factory.class")
"""A configuration that names one of them has something else judge passwords, certificates or tokens."""

_VALIDATOR = re.compile(r"org\.apache\.kafka\.common\.security\.oauthbearer\.(?:secured\.)?OAuthBearerValidatorCallbackHandler")
"""Kafka's own judge of signed tokens; `signed_tokens` does its work."""

USER_OPTION: Final = "user_"


class SaslServer(Protocol):
    """A mechanism's server, one exchange of it."""

    name: str | None
    is_complete: bool

    def evaluate(self, response: bytes) -> bytes:
        """Return the answer to a client's message. Raises AuthenticationError."""


class ListenerSecurity:
    """The security settings of a listener's connections. Raises InvalidArgumentError for what would not work, before anybody
    connects.
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
        """Return a new exchange of an enabled mechanism."""
        if mechanism == PLAIN:
            return PlainServer(self._users)
        if mechanism == OAUTHBEARER:
            return OAuthBearerServer(time.time, None if self._tokens is None else self._tokens.judge)
        return ScramServer(mechanism, partial(self._find, mechanism), partial(self._disguise.credential, mechanism))

    def _refuse(self, listener: Listener) -> None:
        """Refuse classes of Java's, and keys, that would let fewer in than what is done here in their place."""
        for name, value in self._given.items():
            bare = name.removeprefix(self._prefix)
            if bare == f"{OAUTHBEARER.lower()}.{REFUSED[0]}" and _VALIDATOR.fullmatch(value) and self._tokens_text(URL):
                continue
            if value and (bare.endswith(REFUSED) and not bare.startswith("listener.name.")):
                raise InvalidArgumentError(f"listener {listener.name} cannot be secured by {name}, which is not supported here")

    def _text(self, name: str) -> str:
        return self._given.get(self._prefix + name, self._given.get(name, "")).strip()

    def _session_ms(self, mechanism: str) -> int:
        """Return how long a session lasts: a mechanism may have its own time, with the listener in front."""
        name = "connections.max.reauth.ms"
        own = f"{mechanism.lower()}.{name}"
        return self._number(own if f"{self._prefix}{own}" in self._given else name)

    def _tokens_text(self, name: str) -> str:
        """The value of an OAUTHBEARER property, with or without the mechanism as prefix."""
        return self._given.get(f"{self._prefix}{OAUTHBEARER.lower()}.{name}", "").strip() or self._text(name)

    def _number(self, name: str) -> int:
        text = self._text(name) or "0"
        if not text.isdigit():
            raise InvalidArgumentError(name, found=repr(text), expected="milliseconds")
        return int(text)

    def _tls(self) -> ContextSource:
        auth = self._text("ssl.client.auth").lower() or NONE
        if auth not in CLIENT_AUTH:
            raise InvalidArgumentError("ssl.client.auth", found=auth, expected=", ".join(CLIENT_AUTH))
        settings = tls_settings({name: text for name in TLS_PROPERTIES if (text := self._text(name))})

        def make(settings: TlsSettings) -> ssl.SSLContext:
            return server_context(settings, auth)

        return ContextSource(settings, make)

    def _enabled(self, listener: Listener) -> tuple[str, ...]:
        words = [word.strip().upper() for word in self._text("sasl.enabled.mechanisms").split(",") if word.strip()]
        if not words:
            raise InvalidArgumentError(
                f"listener {listener.name} has no SASL mechanism",
                expected=f"sasl.enabled.mechanisms, of {', '.join(MECHANISMS)}",
            )
        for word in words:
            if word not in MECHANISMS:
                raise InvalidArgumentError("sasl.enabled.mechanisms", found=word, expected=f"some of {', '.join(MECHANISMS)}")
        return tuple(dict.fromkeys(words))

    def _plain_users(self) -> dict[str, Secret]:
        name = f"{self._prefix}{PLAIN.lower()}.sasl.jaas.config"
        text = self._given.get(name)
        if not text:
            raise InvalidArgumentError(
                f"PLAIN needs {name} with its users", expected='…PlainLoginModule required user_alice="…";'
            )
        options = parse_jaas(text, name).options
        return {one.removeprefix(USER_OPTION): value for one, value in options.items() if one.startswith(USER_OPTION)}


def check_secured(listeners: Iterable[Listener], given: Mapping[str, str]) -> None:
    """Raise InvalidArgumentError where a listener could not be served: before a folder is opened, or made."""
    for listener in listeners:
        if listener.protocol != PLAINTEXT:
            ListenerSecurity(listener, given, lambda mechanism, name: None)
