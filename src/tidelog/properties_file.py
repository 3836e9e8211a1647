r"""Java properties files: `server.properties`, `client.properties`.

A line is `key=value`, `key: value` or `key value`. `#` and `!` begin comments. A line that ends with an odd number of backslashes
continues on the next line. `\t \n \r \f` and `\uXXXX` are escapes; a backslash before any other character stands for that
character. If several lines have the same key, the last line wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tidelog.errors import InvalidArgumentError, StorageError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_ENDS_IN_ONE = re.compile(r"(?:\r|(?<!\r)\n)\Z")
_KEY_END = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_BAD_UNICODE = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})")


def read_properties_file(path: str | Path) -> dict[str, str]:
    """Read a file in Java's format. Raises StorageError; InvalidArgumentError for an invalid escape or a zero byte."""
    try:
        text = Path(path).read_text("latin-1")  # Java's encoding of these files: every byte is valid.
    except OSError as error:
        raise StorageError(f"cannot read the properties: {error.strerror}", path=path) from error
    if "\0" in text:  # Java accepts such a file, and a broker would run with defaults instead of the intended settings.
        raise InvalidArgumentError(
            "the file is not a properties file", path=path, found=f"a zero byte at position {text.index(chr(0))}", expected="text"
        )
    try:
        return parse_properties(text)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(error.message, path=path, found=error.found, expected=error.expected) from None


def parse_properties(text: str) -> dict[str, str]:
    r"""Return the keys and values of a text in Java's format. Raises InvalidArgumentError for a `\u` without four hex digits."""
    found = {}
    for line in _logical_lines(text):
        if _BAD_UNICODE.search(line):
            raise InvalidArgumentError("a line has an invalid escape", found=repr(line), expected="\\u and four hex digits")
        key = _KEY_END.match(line)
        separator = _SEPARATOR.match(line, key.end() if key else 0)
        assert key is not None and separator is not None
        found[_unescaped(key[0])] = _unescaped(line[separator.end() :])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    line = ""
    is_open = False
    for natural in _LINE_END.split(text[:-1] if _ENDS_IN_ONE.search(text) else text):
        part = natural.lstrip(_BLANKS)
        if not line and part.startswith(("#", "!")):
            is_open = False
            continue
        is_open = (len(part) - len(part.rstrip("\\"))) % 2 == 1
        line += part[:-1] if is_open else part
        if line and not is_open:
            yield line
            line = ""
    if is_open:  # The file ends with a backslash, perhaps followed by a line end: Java counts this as a line, even without text.
        yield line


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPED.sub(lambda match: chr(int(match[1], 16)) if match[1] else _ESCAPES.get(match[2] or "", match[2] or ""), text)
    # An escape is a UTF-16 code unit: two may form one character, and a lone surrogate is no character.
    return plain.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")
