r"""Kafka's `server.properties`: the file's format, and who each property is for.

The format is Java's: `key=value`, `key: value` or `key value` a line, `#` and `!` begin comments, a line that ends in an odd
number of backslashes goes on in the next one, `\t \n \r \f` and `\uXXXX` are escapes, and a backslash before anything else
stands for that. A later line wins over an earlier one of the same key.

| a property is | goes to |
|---|---|
| the broker's own (`broker_config`) | `BrokerConfig` |
| of the data folder, or a default of topics | `LogManager`, under the topics' names |
| Kafka's, without a meaning here (`unused_properties`) | nowhere; logged |
| anything else | nowhere; one warning |

A topic's own name (`retention.ms`) is no broker's property to Kafka, which ignores it in a file; obeying it would delete what
Kafka keeps. So it is taken only from those who cannot mean Kafka: keyword arguments and the command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tidelog.broker.settings.broker_config import BROKER_PROPERTIES, OTHER_PROPERTIES, BrokerConfig
from tidelog.broker.settings.cluster_config import CLUSTER_PROPERTIES
from tidelog.broker.settings.unused_properties import is_unused
from tidelog.config import BROKER_NAMES, LogConfig, PropertyValue, did_you_mean, unaliased
from tidelog.errors import InvalidArgumentError, StorageError
from tidelog.storage.manager_config import MANAGER_PROPERTIES, ManagerConfig

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_ENDS_IN_ONE = re.compile(r"(?:\r|(?<!\r)\n)\Z")
_KEY_END = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_BAD_UNICODE = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})")


class ServerProperties(NamedTuple):
    """A broker's properties, sorted by whom they are for."""

    config: BrokerConfig
    manager: dict[str, PropertyValue]
    """For `LogManager`, defaults of topics under the topics' names."""
    unused: tuple[str, ...]
    """Kafka's that mean nothing here."""
    unknown: tuple[str, ...]


def read_properties_file(path: str | Path) -> dict[str, str]:
    """Read a file of Java's format. Raises StorageError, InvalidArgumentError for an escape that is none, or what is no text."""
    try:
        text = Path(path).read_text("latin-1")  # Java's encoding of these files; it has no wrong bytes.
    except OSError as error:
        raise StorageError(f"cannot read the properties: {error.strerror}", path=path) from error
    if "\0" in text:  # Java takes that as well, and a broker would run with defaults, and none of what was meant.
        raise InvalidArgumentError(
            "no file of properties", path=path, found=f"a zero byte at position {text.index(chr(0))}", expected="text"
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
            raise InvalidArgumentError("an escape of a property is none", found=repr(line), expected="\\u and four hex digits")
        key = _KEY_END.match(line)
        separator = _SEPARATOR.match(line, key.end() if key else 0)
        assert key is not None and separator is not None
        found[_unescaped(key[0])] = _unescaped(line[separator.end() :])
    return found


def sort_properties(properties: Mapping[str, PropertyValue], *, topic_names: bool = False) -> ServerProperties:
    """Say who each property is for; with `topic_names`, those of topics are defaults too.

    Raises InvalidArgumentError for a bad value. Of Kafka's several names for one thing the one with the finest unit wins, and a
    topic's own name before all.
    """
    config = BrokerConfig.from_properties(properties)
    manager: dict[str, PropertyValue] = {}
    defaults: dict[str, PropertyValue] = {}
    unused: list[str] = []
    unknown: list[str] = []
    for name, value in properties.items():
        value = value.strip() if isinstance(value, str) else value
        if name in MANAGER_PROPERTIES:
            manager[name] = value
        elif name in BROKER_NAMES or (topic_names and name in _TOPIC_NAMES):
            defaults[name] = value
        elif name == "broker.id":
            if str(value) != "-1":  # Kafka's for "give me one".
                manager.setdefault("node.id", value)
        elif config.cluster is not None and name in CLUSTER_PROPERTIES:
            continue
        elif name not in BROKER_PROPERTIES and name not in OTHER_PROPERTIES:
            (unused if is_unused(name) else unknown).append(name)
    if "log.flush.scheduler.interval.ms" in manager:
        # Kafka's default of the one is the other.
        defaults.setdefault("log.flush.interval.ms", manager["log.flush.scheduler.interval.ms"])
    manager.update(unaliased(defaults, warn=False))
    ManagerConfig.from_properties(manager)
    return ServerProperties(config, manager, tuple(sorted(unused)), tuple(sorted(unknown)))


_TOPIC_NAMES = frozenset(LogConfig().to_properties())


def described(unknown: Iterable[str], *, topic_names: bool = False) -> str:
    """Name properties that there are not, each with the one that was probably meant; of a topic's too with `topic_names`."""
    known = {*MANAGER_PROPERTIES, *BROKER_NAMES, *BROKER_PROPERTIES, *OTHER_PROPERTIES, "broker.id"}
    if topic_names:
        known |= _TOPIC_NAMES
    return ", ".join(f"{name}{did_you_mean(name, known)}" for name in unknown)


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
    if is_open:  # The file ends in a backslash, or in one and a line's end: to Java a line even if nothing else is in it.
        yield line


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPED.sub(lambda match: chr(int(match[1], 16)) if match[1] else _ESCAPES.get(match[2] or "", match[2] or ""), text)
    # An escape is a unit of UTF-16: two of them may be one character, and half of one is none.
    return plain.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")
