r"""Parses `sasl.jaas.config`: a login module and its options, in Java's syntax.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="…";

Words are bare or in single or double quotes. Within quotes `\"`, `\\`, `\n` and the like are escapes. `//` and `/* */` begin
comments. A property holds one module and ends with a semicolon. Errors contain no values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.errors import InvalidArgumentError
from tidelog.security.secret import Secret

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

PROPERTY = "sasl.jaas.config"
FLAGS = ("required", "requisite", "sufficient", "optional")

_EXPECTED = 'a module, a flag, options and a semicolon: …PlainLoginModule required username="…" password="…";'
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*(?:.*?\*/|.*)|(?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<sign>[=;])|(?P<word>[^\s=;"']+)""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\([0-7]{1,3}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module's class and options. Every value is treated as a secret, because any value may be a secret."""

    name: str
    options: Mapping[str, Secret]

    def text(self, option: str) -> str | None:
        """Return an option's value, None if it is absent."""
        value = self.options.get(option)
        return None if value is None else value.reveal()


def parse_jaas(text: str, name: str = PROPERTY) -> LoginModule:
    """Return the login module in a property's text. `name` is the property's name. Raises InvalidArgumentError, which
    contains no value.
    """
    tokens = _tokens(text, name)
    if len(tokens) < 3 or tokens[-1] != (";", True):
        raise _wrong(name, "no semicolon at its end" if len(tokens) > 1 else "an incomplete login module")
    if any(token == (";", True) for token in tokens[:-1]):
        raise _wrong(name, "more than one module")
    (module, _), (flag, _), *rest = tokens[:-1]
    if flag.lower() not in FLAGS:
        raise _wrong(name, f"no flag after the module: one of {', '.join(FLAGS)}")
    options: dict[str, Secret] = {}
    if len(rest) % 3:
        raise _wrong(name, "an option has no value")
    for at in range(0, len(rest), 3):
        (option, _), equals, (value, is_sign) = rest[at : at + 3]
        if equals != ("=", True) or is_sign:
            raise _wrong(name, "an option has no value")
        if option in options:
            raise _wrong(name, "a repeated option")
        options[option] = Secret(value)
    return LoginModule(module, options)


def _tokens(text: str, name: str) -> list[tuple[str, bool]]:
    """Return the tokens. Each comes with a flag: whether the token is punctuation."""
    found: list[tuple[str, bool]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _wrong(name, f"a quote that does not end, at character {position}")
        position = match.end()
        if match["quoted"]:
            found.append((_ESCAPED.sub(_unescaped, match["quoted"][1:-1]), False))
        elif match["sign"]:
            found.append((match["sign"], True))
        elif match["word"]:
            found.append((match["word"], False))
    return found


def _unescaped(match: re.Match[str]) -> str:
    letter = match[1]
    return chr(int(letter, 8)) if letter[0] in "01234567" else _ESCAPES.get(letter, letter)


def _wrong(name: str, found: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{name} is not a login module", found=found, expected=_EXPECTED)
