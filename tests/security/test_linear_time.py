"""What anybody may send before it is known who it is costs time in proportion to its size, whatever it looks like.

A pattern whose parts can match the same bytes in many ways is tried in all of them where the end does not fit. So each parser
reads texts of two pieces, many times each, in rows and in turns, with an end that fits nothing: eight times as many pieces must
not take much more than eight times as long. Where it seems so, the fastest of more tries decides: the machine may have been busy.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from itertools import product
from typing import Any, cast

import pytest

from tidelog.broker.apis import api_versions
from tidelog.errors import AuthenticationError, InvalidArgumentError
from tidelog.model import is_topic_name
from tidelog.security.distinguished_name import subject_name
from tidelog.security.jaas import parse_jaas
from tidelog.security.oauth_bearer import OAuthBearerServer
from tidelog.security.plain import PlainServer
from tidelog.security.principal import PrincipalRules
from tidelog.security.scram import ScramServer, new_credential
from tidelog.security.secret import Secret
from tidelog.wire.messages.api_versions import ApiVersionsRequest

FEW = 1000
TIMES = 8
TRIES = 5

_CREDENTIAL = new_credential("SCRAM-SHA-256", Secret("made-for-this-test"))
_RULES = PrincipalRules(r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT")


def _oauth(text: str) -> object:
    return OAuthBearerServer(lambda: 1000.0).evaluate(text.encode())


def _plain(text: str) -> object:
    return PlainServer({"ann": Secret("made-for-this-test")}).evaluate(text.encode())


def _scram_first(text: str) -> object:
    return ScramServer("SCRAM-SHA-256", lambda name: _CREDENTIAL, lambda name: _CREDENTIAL).evaluate(text.encode())


def _scram_final(text: str) -> object:
    server = ScramServer("SCRAM-SHA-256", lambda name: _CREDENTIAL, lambda name: _CREDENTIAL)
    server.evaluate(b"n,,n=ann,r=C")
    return server.evaluate(text.encode())


def _software(text: str) -> object:
    request = cast("Any", type("Request", (), {"api_version": 3}))
    return api_versions.handle(cast("Any", None), ApiVersionsRequest("x", text), request)


def _subject(text: str) -> object:
    return subject_name(_der(0x30, _der(0x30, b"\x02\0" * 4 + _der(0x30, _attribute(text.encode("latin-1"))))))


def _attribute(oid: bytes) -> bytes:
    return _der(0x31, _der(0x30, _der(6, oid) + _der(0x0C, b"x")))


def _der(tag: int, content: bytes) -> bytes:
    return bytes([tag, 0x84]) + len(content).to_bytes(4) + content


PARSERS: dict[str, tuple[Callable[[str], object], list[str], list[str], str]] = {
    "OAUTHBEARER": (
        _oauth,
        ["n,,\x01", "n,a=", "n,,\x01auth=Bearer "],
        ["auth=Bearer x\x01", "auth=Bearer ", "a=\x01", "a=b\x01", "\x01", "=", " ", "e30.", ","],
        "!",
    ),
    "PLAIN": (_plain, [""], ["\0", "ann", "\0ann\0"], "!"),
    "SCRAM, first": (_scram_first, ["n,,", "n,,n=ann,r=C,", "n,,n="], ["n=", ",", "=2C", "r=C", ",r=C", "x"], "\n"),
    "SCRAM, final": (_scram_final, ["c=biws,r=C,", "c=", ""], ["c=", ",", ",p=A", ",p=", ",r=C", "A", "="], "!"),
    "sasl.jaas.config": (parse_jaas, ["", "m required "], ["/*", "//", '"', "'", "\\", " ", "\n", "=", ";", "a", "/* */"], "'"),
    "ssl.principal.mapping.rules": (_RULES.principal, ["CN="], ["CN=", ",", "OU=", ",OU=ServiceUser", "a", "cn=a"], "!"),
    "a certificate's subject": (_subject, [""], ["\xff", "\x7f", "\x80"], "\xff"),
    "client_software_version": (_software, [""], ["a", "-", ".", "a-", "-a"], "-"),
    "a topic's name": (is_topic_name, [""], ["a", "-", "."], "!"),
}


def _seconds(parse: Callable[[str], object], text: str) -> float:
    began = time.thread_time()
    with contextlib.suppress(AuthenticationError, InvalidArgumentError):
        parse(text)
    return time.thread_time() - began


@pytest.mark.parametrize("name", PARSERS)
def test_time_grows_with_the_size_alone(name: str) -> None:
    parse, beginnings, pieces, end = PARSERS[name]
    for beginning, one, other, is_mixed in product(beginnings, pieces, pieces, (True, False)):

        def text(times: int) -> str:
            middle = (one + other) * times if is_mixed else one * times + other * times  # noqa: B023
            return beginning + middle + end  # noqa: B023

        few, many = text(FEW), text(FEW * TIMES)
        if _seconds(parse, many) > 3 * TIMES * _seconds(parse, few):
            fewest = min(_seconds(parse, few) for _ in range(TRIES))
            assert min(_seconds(parse, many) for _ in range(TRIES)) < 3 * TIMES * fewest + 0.001, (beginning, one, other)
