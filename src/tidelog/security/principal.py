"""The principal of a connection, and its mapping from a certificate's name, as in Kafka.

`ssl.principal.mapping.rules` (KIP-371) is a comma-separated list of rules. A rule is `RULE:pattern/replacement/`, optionally
followed by `L` or `U` for lower or upper case, or `DEFAULT`, which stands for the whole name. The first rule that matches the
whole name applies. The name is written as in `distinguished_name`.
"""

from __future__ import annotations

import re
import warnings
from typing import Final, NamedTuple

from tidelog.errors import AuthenticationError, InvalidArgumentError

USER: Final = "User"


class Principal(NamedTuple):
    """A type and a name, in the form that ACLs use: `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")


def is_principal(text: str) -> bool:
    """Whether a string has the form of a principal: type, colon, name."""
    kind, colon, name = text.partition(":")
    return bool(kind and colon and name)


_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")


_PART = re.compile(r"\$(?P<group>\d+)|\\(?P<literal>.)|[^$\\]+|.", re.DOTALL)


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    parts: tuple[str | int, ...]
    """The parts of the replacement: literal text and group numbers."""
    letters: str

    def apply(self, name: str) -> str | None:
        if self.pattern.fullmatch(name) is None:
            return None
        # As in Java's replaceAll: a pattern that matches the empty string is replaced once more at the end.
        found = self.pattern.sub(self._replacement, name)
        return found.lower() if self.letters == "L" else found.upper() if self.letters == "U" else found

    def _replacement(self, match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match[part] or "" for part in self.parts)


class PrincipalRules:
    """A listener's ``ssl.principal.mapping.rules``. Raises InvalidArgumentError for an invalid rule."""

    def __init__(self, text: str = "DEFAULT") -> None:
        self._rules: list[_Rule | None] = []
        position = 0
        while position < len(text.rstrip()):
            match = _RULE.match(text, position)
            if match is None:
                raise InvalidArgumentError(
                    "ssl.principal.mapping.rules has an invalid rule",
                    found=repr(text[position:]),
                    expected="DEFAULT or RULE:pattern/replacement/[LU]",
                )
            position = match.end()
            self._rules.append(None if match[1] else _compiled(match[2], match[3], match[4]))

    def principal(self, name: str) -> Principal:
        """Return the principal for a certificate's name. Raises AuthenticationError if no rule matches, as in Kafka."""
        for rule in self._rules or [None]:
            found = name if rule is None else rule.apply(name)
            if found is not None:
                return Principal(USER, found)
        raise AuthenticationError("no rule of ssl.principal.mapping.rules matches the certificate's name", found=repr(name))


_PATTERN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<dot>\.)|.", re.DOTALL)
_JAVAS_DOT: Final = r"[^\n\r\x85\u2028\u2029]"


def _as_java_means(pattern: str) -> str:
    """Return the pattern, changed so that a dot matches no line terminator of Java, which has more line terminators than
    Python.
    """
    if re.search(r"\(\?[a-z]*s", pattern):  # With this flag a dot matches everything, in both languages.
        return pattern
    return "".join(_JAVAS_DOT if one["dot"] else one[0] for one in _PATTERN.finditer(pattern))


def _compiled(pattern: str, replacement: str, letters: str) -> _Rule:
    r"""Compile a Java pattern, in which `\w`, `\d`, `\s` and `(?i)` mean ASCII. Raises InvalidArgumentError.

    Rejects syntax that only Java has: nested character classes (`[a-z&&[^x]]`), `\p{Alpha}`.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            compiled = re.compile(_as_java_means(pattern), re.ASCII)
    except (re.error, FutureWarning) as error:
        raise InvalidArgumentError("ssl.principal.mapping.rules has an invalid pattern", found=f"{pattern!r}: {error}") from None
    parts: list[str | int] = []
    for one in _PART.finditer(replacement):
        digits = one["group"]
        while digits and int(digits) > compiled.groups:
            digits = digits[:-1]
        if digits:
            parts += [int(digits), one["group"][len(digits) :]]
        else:  # A reference to a group that does not exist is literal text.
            parts.append(one["literal"] or one[0])
    return _Rule(compiled, tuple(parts), letters)
