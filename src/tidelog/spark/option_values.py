"""Parses the values of single options, for source and sink. Errors name the option.

`given` has the user's options by lower-case name, as everywhere in `tidelog.spark`. This module does not import PySpark.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping

from tidelog.client.connections.addresses import parse_addresses, secured
from tidelog.clock import Clock
from tidelog.errors import InvalidArgumentError
from tidelog.folder_path import folder_path
from tidelog.model import is_topic_name
from tidelog.security.client_config import client_config, is_of_security
from tidelog.times import parse_time

BROKERS = "kafka.bootstrap.servers"
CLIENT = "kafka."
"""The prefix of options that are passed to the Kafka client."""

TIME_ZONE = "timeZone"
"""The option with the time zone of times that name none."""

INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)


def folder(given: Mapping[str, str], option: str) -> str:
    """Return an absolute path, from a path or a `file:` URI."""
    text = given[option.lower()].strip()
    if not text:
        raise InvalidArgumentError(f"option {option} is empty")
    try:
        path = folder_path(text, "a folder that every worker can open (a path, or file:///path)")
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"option {option}: {error}") from None
    # Relative paths refer to the driver's working directory; workers have their own.
    return os.fspath(path.absolute())


def broker_addresses(given: Mapping[str, str], option: str, text: str) -> str:
    """Check an address of brokers and the options `kafka.…`, and return the address combined with these options."""
    try:
        config = client_config({name.removeprefix(CLIENT): value for name, value in given.items() if name.startswith(CLIENT)})
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"options {CLIENT}…: {error}") from None
    found = secured(text, config)
    try:
        parse_addresses(found)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"option {option}: {error}") from None
    return found


def is_of_connections(name: str) -> bool:
    """Whether an option, in lower case, configures the connection to brokers."""
    return name.startswith(CLIENT) and is_of_security(name.removeprefix(CLIENT))


def check_topic(option: str, topic: str) -> None:
    """Raise InvalidArgumentError for an invalid topic name."""
    if not is_topic_name(topic):
        raise InvalidArgumentError(f"option {option}: {topic!r} is not a topic name (letters, digits, '.', '_', '-')")


def json_object(option: str, text: str, expected: str) -> dict[str, object]:
    """Parse a JSON object. `expected` describes the expected form in the error."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise InvalidArgumentError(f"option {option}: {expected}, found {text}")
    return document


def is_integer(value: object) -> bool:
    """Whether a value of a JSON document is an integer, which excludes true and false."""
    return isinstance(value, int) and not isinstance(value, bool)


def time(given: Mapping[str, str], option: str, clock: Clock, *, start_ms: int | None = None) -> int | None:
    """Return a time in epoch ms, or None if the option is not set. `+15m` is relative to `start_ms`."""
    text = given.get(option.lower())
    if text is None:
        return None
    return parse_time(text, clock, zone=given.get(TIME_ZONE.lower()), start_ms=start_ms, name=f"option {option}")


def choice(given: Mapping[str, str], option: str, choices: tuple[str, ...]) -> str:
    """Return the option's value, which must be one of `choices`. If the option is not set, return the first choice."""
    text = given.get(option.lower(), choices[0]).strip().lower()
    if text not in choices:
        raise InvalidArgumentError(f"option {option}: expected {' or '.join(choices)}, found {given[option.lower()]!r}")
    return text


def boolean(given: Mapping[str, str], option: str, default: bool | None) -> bool | None:
    """Return the option's boolean value, or `default` if the option is not set."""
    text = given.get(option.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise InvalidArgumentError(f"option {option}: expected true or false, found {text!r}")
    return text.strip().lower() == "true"


def positive(given: Mapping[str, str], option: str) -> int | None:
    """Return the option's value, a positive number, or None if the option is not set."""
    text = given.get(option.lower())
    if text is None:
        return None
    if not INTEGER.fullmatch(text.strip()) or int(text) <= 0:
        raise InvalidArgumentError(f"option {option}: expected a positive number, found {text!r}")
    return int(text)


def joined(paths: str) -> str:
    """Return the folders of `load([...])` as one address. Spark passes them as a JSON list."""
    try:
        found = json.loads(paths)
    except ValueError:
        found = None
    if not isinstance(found, list) or not found or not all(isinstance(one, str) for one in found):
        raise InvalidArgumentError('option paths: expected a JSON list of folders, e.g. ["/d1", "/d2"]', found=paths[:100])
    return os.pathsep.join(found)


_ELSEWHERE = {
    **dict.fromkeys(("topic", "topics"), "subscribe"),
    **dict.fromkeys(("from", "since"), "startTime"),
    **dict.fromkeys(("to", "until"), "endTime"),
    **dict.fromkeys(("servers", "brokers"), "kafka.bootstrap.servers"),
    **dict.fromkeys(("format", "valueformat"), "decode"),
    "keyformat": "keyDecode",
}
"""Maps an option's name on the command line or in other tools to Tidelog's name."""


def ours_for(name: str) -> str:
    """Return a hint about the option that was probably meant by a name from the command line or from other tools. Return an empty
    string if there is no such option.
    """
    return f" (did you mean {_ELSEWHERE[name]}?)" if name in _ELSEWHERE else ""
