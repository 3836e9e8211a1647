"""Who is at the other end of a connection: Kafka's principal, and how the name of a certificate becomes one.

`ssl.principal.mapping.rules` (KIP-371): `RULE:pattern/replacement/`, with `L` or `U` after it for small or capital letters, or
`DEFAULT`, the whole name; commas between. The first that matches the whole name counts. The name is RFC 2253's: last part first.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from tidelog.errors import InvalidArgumentError

USER: Final = "User"


class Principal(NamedTuple):
    """A kind and a name, as ACLs write them: `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")


def is_principal(text: str) -> bool:
    """Whether a text is a principal's: a type, a colon, a name."""
    kind, colon, name = text.partition(":")
    return bool(kind and colon and name)


_KEYWORDS: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_EMAIL: Final = "emailAddress"
_EMAIL_OID: Final = "1.2.840.113549.1.9.1"
_SPECIAL = re.compile(r'([,+"\\<>;])')
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")


def distinguished_name(subject: Any) -> str:
    """Return the name of a certificate's subject, of `getpeercert`, as Java writes it."""
    return ",".join("+".join(_part(name, value) for name, value in relative) for relative in reversed(subject))


def _part(name: str, value: str) -> str:
    if name == _EMAIL:  # RFC 2253 has no keyword for it: Java writes the number, and the value's own bytes.
        data = value.encode()
        return f"{_EMAIL_OID}=#16{len(data):02x}{data.hex()}"
    text = _SPECIAL.sub(r"\\\1", value)
    if text.startswith(("#", " ")):
        text = f"\\{text}"
    if text.endswith(" "):
        text = f"{text[:-1]}\\ "
    return f"{_KEYWORDS.get(name, name)}={text}"


class PrincipalRules:
    """The rules of a listener. Raises InvalidArgumentError for what is none."""

    def __init__(self, text: str = "DEFAULT") -> None:
        self._rules: list[tuple[re.Pattern[str], str, str] | None] = []
        position = 0
        while position < len(text.rstrip()):
            match = _RULE.match(text, position)
            if match is None:
                raise InvalidArgumentError(
                    "ssl.principal.mapping.rules",
                    found=repr(text[position:]),
                    expected="DEFAULT or RULE:pattern/replacement/[LU]",
                )
            position = match.end()
            self._rules.append(None if match[1] else _compiled(match[2], match[3], match[4]))

    def principal(self, name: str) -> Principal:
        """Return the principal of a certificate's name; the whole name where no rule matches."""
        for rule in self._rules:
            if rule is None:
                break
            pattern, replacement, letters = rule
            found = pattern.fullmatch(name)
            if found is not None:
                text = found.expand(replacement)
                return Principal(USER, text.lower() if letters == "L" else text.upper() if letters == "U" else text)
        return Principal(USER, name)


def _compiled(pattern: str, replacement: str, letters: str) -> tuple[re.Pattern[str], str, str]:
    try:
        return re.compile(pattern), re.sub(r"\$(\d)", r"\\g<\1>", replacement), letters
    except re.error as error:
        raise InvalidArgumentError("ssl.principal.mapping.rules has a wrong pattern", found=f"{pattern!r}: {error}") from None
