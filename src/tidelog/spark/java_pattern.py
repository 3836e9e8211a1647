r"""Translates topic patterns, which are Java regular expressions, to Python's.

`subscribePattern` is a Java pattern in Spark's Kafka connector. Python's `re` has nearly the same syntax. This module translates
differences in notation, and refuses constructs that would mean something different.

| Java | here |
|---|---|
| `(?<name>…)`, `\k<name>` | `(?P<name>…)`, `(?P=name)` |
| `\Q…\E` | the quoted characters, escaped |
| `\d \w \s` and their opposites | ASCII only, as in Java |
| `\z`, `\Z` | `\Z`, `(?=\n?\Z)` |
| `\p{…}`, `\P{…}`, `[a-z&&[^b]]`, `[a[b]]`, `\h`, `\R`, `\G`, the flags d, u, U, x | refused: the error names the pattern |

Greedy, reluctant and possessive quantifiers, groups, look-around and back references have the same syntax.
"""

from __future__ import annotations

import re

from tidelog.errors import InvalidArgumentError

_TOKEN = re.compile(
    r"""\\Q(?P<quoted>.*?)(?:\\E|\Z)
      | \\k<(?P<reference>[A-Za-z][A-Za-z0-9]*)>
      | \\(?P<end>[zZ])
      | \\.
      | \(\?<(?P<group>[A-Za-z][A-Za-z0-9]*)>
      | (?P<flags>\(\?[a-zA-Z]*[duULx][a-zA-Z]*[-:)])
      | &&
      | .""",
    re.VERBOSE | re.DOTALL,
)
_ENDS = {"z": r"\Z", "Z": r"(?=\n?\Z)"}


def compile_java_pattern(text: str) -> re.Pattern[str]:
    """Return a Python pattern that is equivalent to the Java pattern. `search` corresponds to Java's `find`.

    Raises InvalidArgumentError for a pattern that is invalid or uses features that only Java has.
    """
    try:
        return re.compile(_translate(text), re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidArgumentError(f"option subscribePattern: invalid pattern {text!r}: {error}") from None


def _translate(text: str) -> str:
    pieces: list[str] = []
    set_start = -1  # The index in `pieces` after the opening bracket of the current set.
    for match in _TOKEN.finditer(text):
        piece = match[0]
        if match["quoted"] is not None:
            piece = re.escape(match["quoted"])
        elif set_start >= 0:
            # These are literals in Python, but union and intersection of sets in Java.
            if piece in ("[", "&&"):
                raise re.error(f"{piece!r} inside a set is not supported", text, match.start())
            # Right after the opening bracket, a closing bracket is a literal, in Java and in Python.
            if piece == "]" and pieces[set_start:] not in ([], ["^"]):
                set_start = -1
        elif match["flags"] is not None:
            raise re.error(f"the flags {piece!r} are not supported", text, match.start())
        elif match["group"] is not None:
            piece = f"(?P<{match['group']}>"
        elif match["reference"] is not None:
            piece = f"(?P={match['reference']})"
        elif match["end"] is not None:
            piece = _ENDS[match["end"]]
        elif piece == "[":
            set_start = len(pieces) + 1
        pieces.append(piece)
    return "".join(pieces)
