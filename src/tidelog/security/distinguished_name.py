"""Returns the name of a certificate's subject as Java writes it (RFC 2253, `X500Principal.getName`). Kafka derives principals
from this name.

| | |
|---|---|
| order | the last part first; the values of a multi-valued part keep their order |
| the nine types of RFC 2253 | keyword and text; special characters are escaped with a backslash |
| any other type | the type's number, and the value's DER in hexadecimal: `1.2.840.113549.1.9.1=#1603614062` |
| a value that Java does not treat as text | its DER in hexadecimal |

The name is parsed from DER, because Python's `ssl` reports neither type numbers nor string types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.errors import InvalidArgumentError

KEYWORDS: Final = {
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
}

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_STRINGS: Final = (0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E)
"""UTF8String, PrintableString, TeletexString, IA5String, GeneralString, BMPString: Java reads the bytes of each as UTF-8.

A NUL therefore precedes each ASCII letter of a BMPString, in Kafka's ACLs as well. NumericString and UniversalString do not count
as text.
"""
_MAX_OID_BYTES: Final = 4096
"""The longest object identifier, in bytes. As in Java, a single number may fill it."""

_SPECIAL = re.compile(r'([,=+<>#;"\\])')
_SPACES = " \r"


class _Element(NamedTuple):
    tag: int
    content: memoryview
    whole: memoryview


def subject_name(certificate: bytes) -> str:
    """Return the subject's name in a DER certificate. Raises InvalidArgumentError if the bytes are not a DER certificate."""
    try:
        signed = _one(_one(memoryview(certificate)).content)
        parts = list(_elements(signed.content))
        # The optional version, serial number, algorithm, issuer and validity precede the subject.
        name = parts[5 if parts[0].tag == _VERSION else 4]
        if name.tag != _SEQUENCE:
            raise ValueError
        return ",".join("+".join(map(_part, _elements(one.content))) for one in reversed(list(_elements(name.content))))
    except (ValueError, IndexError):
        raise InvalidArgumentError("the bytes are not a DER certificate") from None


def _part(element: _Element) -> str:
    number, value = _elements(element.content)
    oid = _dotted(bytes(number.content))
    keyword = KEYWORDS.get(oid)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or oid}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(bytes(value.content).decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    lead = len(text) - len(text.lstrip(_SPACES))
    trail = len(text.rstrip(_SPACES))
    if lead >= trail:
        return "".join(f"\\{letter}" for letter in text)
    inner = _SPECIAL.sub(r"\\\1", text[lead:trail]).replace("\0", "\\00")
    return "".join(f"\\{letter}" for letter in text[:lead]) + inner + "".join(f"\\{letter}" for letter in text[trail:])


def _dotted(content: bytes) -> str:
    if len(content) > _MAX_OID_BYTES:
        raise ValueError(len(content))
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _one(data: memoryview) -> _Element:
    for element in _elements(data):
        return element
    raise ValueError


def _elements(data: memoryview) -> Iterator[_Element]:
    """Split one level of DER into its elements. Raises ValueError, IndexError."""
    position = 0
    while position < len(data):
        start = position
        tag, size = data[position], data[position + 1]
        position += 2
        if size >= 0x80:
            count = size & 0x7F
            if not 1 <= count <= 4:
                raise ValueError(count)
            size = int.from_bytes(data[position : position + count])
            position += count
        if position + size > len(data):
            raise ValueError(size)
        yield _Element(tag, data[position : position + size], data[start : position + size])
        position += size
