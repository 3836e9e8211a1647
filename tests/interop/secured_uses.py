"""What clients try at the listeners of `secured_properties`: what is right, and each way to be wrong, in one table."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.certificates import PASSWORD
from tests.interop.secured_properties import BOB, MECHANISMS
from tests.kafka.secured_clients import SecuredUse
from tests.patience import PATIENCE_S
from tidelog.security.oauth_bearer import unsecured_token

WAIT_S = 10
"""So long a client waits that gets no answer."""


class Try(NamedTuple):
    """A listener, and how it is used."""

    listener: str
    protocol: str
    mechanism: str = ""
    user: str = BOB
    password: str = PASSWORD
    ca: str = "ca.crt"
    certificate: str = ""
    expected: str = "works"
    """"works"; "refused", which clients see at once; "unreachable": a connection that ends, and is tried again."""

    @property
    def name(self) -> str:
        """What is special, in a word."""
        wrong = [
            "another-user" if self.user != BOB else "",
            "wrong-password" if self.password != PASSWORD else "",
            "strange-ca" if self.ca != "ca.crt" else "",
            self.certificate.replace("/", "-"),
        ]
        words = [self.listener, "by", self.protocol, self.mechanism, *wrong]
        return "-".join(word for word in words if word)


_WRONG = "wrong-one"

TRIES: tuple[Try, ...] = (
    Try("PLAINTEXT", "PLAINTEXT"),
    Try("SSL", "SSL"),
    Try("MTLS", "SSL", certificate="client"),
    *(Try(protocol, protocol, mechanism) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MECHANISMS),
    # Who one is.
    *(Try("SASL_SSL", "SASL_SSL", mechanism, password=_WRONG, expected="refused") for mechanism in MECHANISMS[:3]),
    *(Try("SASL_PLAINTEXT", "SASL_PLAINTEXT", one, user="nobody", expected="refused") for one in MECHANISMS[:3]),
    Try("SHORT", "SASL_PLAINTEXT", "OAUTHBEARER", expected="refused"),
    # Certificates.
    Try("SSL", "SSL", ca="strange/ca.crt", expected="refused"),
    Try("ELSEWHERE", "SSL", expected="refused"),
    Try("EXPIRED", "SSL", expected="refused"),
    Try("MTLS", "SSL", expected="refused"),
    Try("MTLS", "SSL", certificate="strange/client", expected="refused"),
    # What the port is.
    Try("SSL", "PLAINTEXT", expected="unreachable"),
    Try("SASL_PLAINTEXT", "PLAINTEXT", expected="unreachable"),
    Try("SASL_SSL", "SASL_PLAINTEXT", "PLAIN", expected="unreachable"),
    Try("PLAINTEXT", "SSL", expected="unreachable"),
    Try("SASL_PLAINTEXT", "SASL_SSL", "PLAIN", expected="unreachable"),
    Try("SASL_SSL", "SSL", expected="unreachable"),
    Try("PLAINTEXT", "SASL_PLAINTEXT", "PLAIN", expected="unreachable"),
    Try("SSL", "SASL_SSL", "PLAIN", expected="unreachable"),
)


def uses(side: str, addresses: Mapping[str, str], folder: Path, tries: Iterable[Try] = TRIES) -> list[SecuredUse]:
    """Return the table as a client needs it, for a broker's addresses; `folder` has the certificates."""
    return [
        SecuredUse(
            name=f"{side}:{one.name}",
            address=addresses[one.listener],
            protocol=one.protocol,
            mechanism=one.mechanism,
            user=one.user,
            password=one.password,
            token=unsecured_token(one.user, time.time()).reveal() if one.mechanism == "OAUTHBEARER" else "",
            ca=str(folder / one.ca),
            certificate=str(folder / f"{one.certificate}.crt") if one.certificate else "",
            key=str(folder / f"{one.certificate}.key") if one.certificate else "",
            seconds=WAIT_S if one.expected == "unreachable" else int(PATIENCE_S),
            works=one.expected == "works",
        )
        for one in tries
    ]
