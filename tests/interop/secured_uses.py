"""The attempts of clients at the listeners of `secured_properties` in one table: valid ones, and each kind of invalid one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.certificates import PASSWORD
from tests.identity_provider import IdentityProvider
from tests.interop.secured_properties import BOB, MECHANISMS
from tests.kafka.secured_clients import SecuredUse
from tests.patience import PATIENCE_S
from tidelog.security.oauth_bearer import unsecured_token

WAIT_S = 10
"""How long (seconds) a client waits for an answer."""


class Try(NamedTuple):
    """A listener and a way to use it."""

    listener: str
    protocol: str
    mechanism: str = ""
    user: str = BOB
    password: str = PASSWORD
    ca: str = "ca.crt"
    certificate: str = ""
    token: str = ""
    """How a token of an identity provider's is wrong: one of `TOKENS`."""
    tls_version: str = ""
    expected: str = "works"
    """"works"; "refused", which clients see at once; "unreachable": a connection that ends, and is tried again."""

    @property
    def name(self) -> str:
        """A short name of what is special."""
        wrong = [
            "another-user" if self.user != BOB else "",
            "wrong-password" if self.password != PASSWORD else "",
            "strange-ca" if self.ca != "ca.crt" else "",
            self.certificate.replace("/", "-"),
            f"token-{self.token}" if self.token else "",
            self.tls_version,
        ]
        words = [self.listener, "by", self.protocol, self.mechanism, *wrong]
        return "-".join(word for word in words if word)


_WRONG = "wrong-one"

TOKENS: Mapping[str, Mapping[str, object]] = {
    "right": {},
    "for-others": {"aud": "others"},
    "for-nobody": {"aud": None},
    "by-others": {"iss": "https://others.example"},
    "without-issuer": {"iss": None},
    "old": {"iat": 1_000_000_000, "exp": 1_000_003_600},
    "strange-key": {},
}
"""The wrong claims of a token. An "unsecured" token is unsigned."""

PASSWORDS = MECHANISMS[:3]
_SASL = ("SASL_PLAINTEXT", "SASL_SSL")
_PROTOCOLS = ("PLAINTEXT", "SSL", *_SASL)

TRIES: tuple[Try, ...] = (
    Try("PLAINTEXT", "PLAINTEXT"),
    Try("SSL", "SSL"),
    Try("SSL", "SSL", tls_version="TLSv1.2"),
    Try("MTLS", "SSL", certificate="client"),
    *(Try("BOTH", "SASL_SSL", mechanism, certificate="client") for mechanism in MECHANISMS),
    *(Try(protocol, protocol, mechanism) for protocol in _SASL for mechanism in MECHANISMS),
    Try("SIGNED", "SASL_PLAINTEXT", "OAUTHBEARER", token="right"),
    # Who one is.
    *(Try(one, one, mechanism, password=_WRONG, expected="refused") for one in _SASL for mechanism in PASSWORDS),
    *(Try(one, one, mechanism, user="nobody", expected="refused") for one in _SASL for mechanism in PASSWORDS),
    *(
        Try("SIGNED", "SASL_PLAINTEXT", "OAUTHBEARER", token=wrong, expected="refused")
        for wrong in (*TOKENS, "unsecured")
        if wrong != "right"
    ),
    # Mechanisms.
    Try("SHORT", "SASL_PLAINTEXT", "OAUTHBEARER", expected="refused"),
    *(Try("SIGNED", "SASL_PLAINTEXT", mechanism, expected="refused") for mechanism in PASSWORDS),
    # Certificates, and versions of TLS.
    Try("SSL", "SSL", ca="strange/ca.crt", expected="refused"),
    Try("ELSEWHERE", "SSL", expected="refused"),
    Try("EXPIRED", "SSL", expected="refused"),
    Try("MTLS", "SSL", expected="refused"),
    Try("MTLS", "SSL", certificate="strange/client", expected="refused"),
    Try("BOTH", "SASL_SSL", "PLAIN", expected="refused"),
    Try("BOTH", "SASL_SSL", "PLAIN", certificate="strange/client", expected="refused"),
    Try("BOTH", "SASL_SSL", "SCRAM-SHA-512", certificate="client", password=_WRONG, expected="refused"),
    Try("SSL", "SSL", tls_version="TLSv1.1", expected="refused"),
    # What the port is.
    *(
        Try(port, protocol, "PLAIN" if protocol in _SASL else "", expected="unreachable")
        for port in _PROTOCOLS
        for protocol in _PROTOCOLS
        if port != protocol
    ),
)


def uses(
    side: str, addresses: Mapping[str, str], folder: Path, provider: IdentityProvider, tries: Iterable[Try] = TRIES
) -> list[SecuredUse]:
    """Return the table as a client needs it, for a broker's addresses; `folder` has the certificates."""
    strange = IdentityProvider(folder / "strange")

    def token(one: Try) -> str:
        if one.token in TOKENS:
            return (strange if one.token == "strange-key" else provider).token(one.user, **TOKENS[one.token])
        return unsecured_token(one.user, time.time()).reveal() if one.mechanism == "OAUTHBEARER" else ""

    return [
        SecuredUse(
            name=f"{side}:{one.name}",
            address=addresses[one.listener],
            protocol=one.protocol,
            mechanism=one.mechanism,
            user=one.user,
            password=one.password,
            token=token(one),
            is_signed=one.token in TOKENS,
            tls_version=one.tls_version,
            ca=str(folder / one.ca),
            certificate=str(folder / f"{one.certificate}.crt") if one.certificate else "",
            key=str(folder / f"{one.certificate}.key") if one.certificate else "",
            seconds=WAIT_S if one.expected == "unreachable" else int(PATIENCE_S),
            works=one.expected == "works",
        )
        for one in tries
    ]
