"""Parses the security properties of a client, under Kafka's names or librdkafka's.

| property | |
|---|---|
| `security.protocol` | PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL |
| `ssl.*` | see `tls_settings` |
| `sasl.mechanism`, `sasl.mechanisms` | PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER |
| `sasl.jaas.config` | a login module with `username` and `password`, or one for OAUTHBEARER; see `jaas` |
| `sasl.username`, `sasl.password` | alternatives to the JAAS module's `username` and `password` |
| `sasl.oauthbearer.token.endpoint.url` | the token endpoint; `clientId`, `clientSecret` and `scope` come from the JAAS module |
| `sasl.oauthbearer.client.id`, `….client.secret`, `….scope` | alternatives to the JAAS module's three options |
| `oauth_cb` | Python: a function that returns a token, or a token and its expiry; its argument is `sasl.oauthbearer.config` |

Other properties in a file, such as those of consumers and producers, are ignored. An unknown name that begins with `security.`,
`ssl.` or `sasl.` is rejected. A `ClientConfig` can be pickled and compared, and never prints its secrets. Parsing opens no files:
they are opened when a connection is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.errors import InvalidArgumentError
from tidelog.near_names import did_you_mean
from tidelog.security.jaas import OAUTH_MODULE, PLAIN_MODULE, PROPERTY, SCRAM_MODULE, LoginModule, parse_jaas
from tidelog.security.oauth_bearer import OAUTHBEARER, without_user
from tidelog.security.plain import PLAIN
from tidelog.security.scram import HASHES
from tidelog.security.secret import HIDDEN, Secret
from tidelog.security.tls_settings import JAVAS_OWN, TLS_PROPERTIES, TlsSettings, tls_settings

PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"
SECURITY_PROTOCOLS: Final = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)

MECHANISMS: Final = (PLAIN, *HASHES, OAUTHBEARER)

SASL_PROPERTIES: Final = frozenset(
    {
        "oauth_cb",
        PROPERTY,
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.password",
        "sasl.username",
    }
)

IGNORED: Final = (
    JAVAS_OWN
    | {f"sasl.login.{name}" for name in ("class", "callback.handler.class", "connect.timeout.ms", "read.timeout.ms")}
    | {f"sasl.login.retry.backoff{name}.ms" for name in ("", ".max")}
    | {f"sasl.login.refresh.{name}" for name in ("window.factor", "window.jitter", "min.period.seconds", "buffer.seconds")}
    | {"sasl.client.callback.handler.class", "sasl.oauthbearer.sub.claim.name", "sasl.oauthbearer.scope.claim.name"}
)
"""Properties that only concern the Java client; they are ignored."""

PROPERTIES: Final = frozenset({"security.protocol"}) | TLS_PROPERTIES | SASL_PROPERTIES
_BEGINNINGS: Final = ("ssl.", "sasl.", "security.", "oauth_cb", "enable.ssl.")
_MECHANISM_OF_MODULE: Final = {PLAIN_MODULE: (PLAIN,), SCRAM_MODULE: tuple(HASHES), OAUTH_MODULE: (OAUTHBEARER,)}

_A_MODULE = re.compile(r"[a-z][a-z0-9_]*(\.[A-Za-z0-9_$]+)*\.[A-Za-z0-9_$]*LoginModule")

TokenCallback = Callable[[str], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthSettings:
    """The source of tokens: a callback, an endpoint, or a user name for unsecured tokens."""

    callback: TokenCallback | None = field(default=None, repr=False)
    callback_config: str = ""
    url: str | None = None
    client_id: str = ""
    client_secret: Secret = field(default_factory=lambda: Secret(""))
    scope: str | None = None
    unsecured_name: str | None = None
    unsecured_lifetime_s: int = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSettings:
    """A mechanism and its credentials."""

    mechanism: str
    username: str = ""
    password: Secret = field(default_factory=lambda: Secret(""))
    token_auth: bool = False
    """Whether the user name is the id of a delegation token."""
    oauth: OAuthSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """A connection's security settings."""

    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None

    @property
    def protocol(self) -> str:
        """Kafka's name of the security protocol."""
        return (SASL_SSL if self.tls else SASL_PLAINTEXT) if self.sasl else (SSL if self.tls else PLAINTEXT)

    def __str__(self) -> str:
        return f"{self.protocol}, {self.sasl.mechanism}" if self.sasl else self.protocol


IN_PLAIN_TEXT: Final = ClientConfig()


def client_config(properties: Mapping[str, Any]) -> ClientConfig:
    """Return the configuration from a client's properties. Raises InvalidArgumentError, which names the property and contains no
    value that may be secret.
    """
    given: dict[str, Any] = {}
    for name, value in properties.items():
        if name in PROPERTIES:
            given[name] = value if callable(value) else str(value)
        elif name.startswith(_BEGINNINGS):
            check_names([name])
    protocol = str(given.get("security.protocol", PLAINTEXT)).strip().upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise InvalidArgumentError("security.protocol is invalid", found=protocol, expected=" or ".join(SECURITY_PROTOCOLS))
    tls = {name: value for name, value in given.items() if isinstance(value, str)}
    return ClientConfig(
        tls=tls_settings(tls) if protocol in (SSL, SASL_SSL) else None,
        sasl=_sasl(given) if protocol in (SASL_PLAINTEXT, SASL_SSL) else None,
    )


def is_of_security(name: str) -> bool:
    """Whether a property, judging by its name, concerns the security of connections."""
    return name in PROPERTIES or name in IGNORED or name.startswith(_BEGINNINGS)


def check_names(names: Iterable[str]) -> None:
    """Raise InvalidArgumentError for a name that is not a security property of a client. Callers that accept no other properties
    use this.
    """
    for name in names:
        if name not in PROPERTIES and name not in IGNORED:
            raise InvalidArgumentError(f"{name} is not a security property of a client{did_you_mean(name, PROPERTIES)}")


def dotted(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword arguments under Kafka's names: an underscore stands for a dot, except in property names with underscores."""
    return {name if name in PROPERTIES else name.replace("_", "."): value for name, value in keywords.items()}


def shown(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties as text for a log. Values that are or may contain secrets are hidden."""
    return {
        name: HIDDEN if is_secret(name) else without_user(str(value)) if name.endswith(".url") else str(value)
        for name, value in properties.items()
    }


def is_secret(name: str) -> bool:
    """Whether a property's value must not be printed."""
    return name.endswith(
        (".password", ".secret", ".key", ".pem", ".certificate.chain", ".jaas.config", ".oauthbearer.config", "oauth_cb")
    )


def _sasl(given: Mapping[str, Any]) -> SaslSettings:
    text = given.get(PROPERTY)
    module = None if text is None else parse_jaas(text)
    mechanism = _mechanism(given, module)
    if mechanism == OAUTHBEARER:
        return SaslSettings(mechanism=mechanism, oauth=_oauth(given, module))
    if module is not None:
        username, password = module.text("username"), module.text("password")
        token_auth = (module.text("tokenauth") or "").lower() == "true"
    else:
        username, password, token_auth = given.get("sasl.username"), given.get("sasl.password"), False
    if not username or password is None:
        raise InvalidArgumentError(
            f"{mechanism} needs sasl.jaas.config with username and password, or sasl.username and sasl.password"
        )
    return SaslSettings(mechanism=mechanism, username=username, password=Secret(password), token_auth=token_auth)


def _mechanism(given: Mapping[str, Any], module: LoginModule | None) -> str:
    text = given.get("sasl.mechanism") or given.get("sasl.mechanisms")
    expected = ", ".join(MECHANISMS)
    if not text:
        raise InvalidArgumentError("sasl.mechanism is missing", expected=f"one of {expected}")
    mechanism = str(text).strip().upper()
    if mechanism == "GSSAPI" or mechanism not in MECHANISMS:
        raise InvalidArgumentError("sasl.mechanism is not supported", found=mechanism, expected=f"one of {expected}")
    fitting = _MECHANISM_OF_MODULE.get(module.name) if module else None
    if module is not None and fitting is None:
        # Text that is not a login module may contain a password.
        found = module.name if _A_MODULE.fullmatch(module.name) else None
        raise InvalidArgumentError(f"{PROPERTY} names an unknown login module", found=found, expected=_module_for(mechanism))
    if fitting is not None and mechanism not in fitting:
        assert module is not None
        raise InvalidArgumentError(
            f"the login module in {PROPERTY} is not for {mechanism}", found=module.name, expected=_module_for(mechanism)
        )
    return mechanism


def _module_for(mechanism: str) -> str:
    return next(name for name, fitting in _MECHANISM_OF_MODULE.items() if mechanism in fitting)


def _oauth(given: Mapping[str, Any], module: LoginModule | None) -> OAuthSettings:
    def option(jaas: str, name: str) -> str | None:
        value = (module.text(jaas) if module else None) or given.get(name)
        return None if value is None else str(value)

    callback = given.get("oauth_cb")
    if callable(callback):
        return OAuthSettings(callback=callback, callback_config=str(given.get("sasl.oauthbearer.config", "")))
    url = given.get("sasl.oauthbearer.token.endpoint.url")
    if url:
        client_id, secret = (
            option("clientId", "sasl.oauthbearer.client.id"),
            option("clientSecret", "sasl.oauthbearer.client.secret"),
        )
        if not str(url).startswith(("https://", "http://")):
            raise InvalidArgumentError(
                "sasl.oauthbearer.token.endpoint.url is invalid", found=repr(without_user(str(url))), expected="https://…"
            )
        if not client_id or not secret:
            raise InvalidArgumentError("sasl.oauthbearer.token.endpoint.url needs clientId and clientSecret in sasl.jaas.config")
        scope = option("scope", "sasl.oauthbearer.scope")
        return OAuthSettings(url=str(url), client_id=client_id, client_secret=Secret(secret), scope=scope)
    name = module.text("unsecuredLoginStringClaim_sub") if module else None
    if not name:
        raise InvalidArgumentError(
            "OAUTHBEARER needs a token: sasl.oauthbearer.token.endpoint.url with clientId and clientSecret, or oauth_cb"
        )
    lifetime = (module.text("unsecuredLoginLifetimeSeconds") if module else None) or "3600"
    if not lifetime.isdigit():
        raise InvalidArgumentError("unsecuredLoginLifetimeSeconds in sasl.jaas.config must be a number of seconds")
    return OAuthSettings(unsecured_name=name, unsecured_lifetime_s=int(lifetime))
