r"""Topic patterns: Java's regular expressions, as far as Python's engine says the same.

`subscribePattern` is a Java pattern in Spark's Kafka connector. Python's `re` reads nearly all of it alike; this module
translates what is only written differently and refuses what would mean something else.

| Java | here |
|---|---|
| `(?<name>…)`, `\k<name>` | `(?P<name>…)`, `(?P=name)` |
| `\Q…\E` | its characters, quoted |
| `\d \w \s` and their opposites | ASCII only, as in Java |
| `\z`, `\Z` | `\Z`, `(?=\n?\Z)` |
| `\p{…}`, `\P{…}`, `[a-z&&[^b]]`, `[a[b]]`, `\h`, `\R`, `\G`, the flags d, u, U, x | refused: an error that names the pattern |

Greedy, reluctant and possessive quantifiers, groups, look-around and back references are written alike in both.
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
    """Return the Python pattern that matches what the Java pattern matches: `search` where Java says `find`.

    Raises InvalidArgumentError for a pattern that is broken or uses what only Java has.
    """
    try:
        return re.compile(_translate(text), re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidArgumentError(f"option subscribePattern: cannot read the pattern {text!r}: {error}") from None


def _translate(text: str) -> str:
    pieces: list[str] = []
    set_start = -1  # the index in `pieces` after the opening bracket of the set that we are in
    for match in _TOKEN.finditer(text):
        piece = match[0]
        if match["quoted"] is not None:
            piece = re.escape(match["quoted"])
        elif set_start >= 0:
            # Python takes these literally, Java for the union and the intersection of sets.
            if piece in ("[", "&&"):
                raise re.error(f"{piece!r} inside a set", text, match.start())
            # Right after the opening bracket a closing one is a literal, in both.
            if piece == "]" and pieces[set_start:] not in ([], ["^"]):
                set_start = -1
        elif match["flags"] is not None:
            raise re.error(f"the flags {piece!r} mean something else outside Java", text, match.start())
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
