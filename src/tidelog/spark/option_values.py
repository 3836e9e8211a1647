"""Parses single values of options, for source and sink; errors name the option.

`given` has the user's options by lower-case names, as everywhere in `tidelog.spark`. Nothing here imports PySpark.
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
"""Prefix of options for a Kafka client."""

TIME_ZONE = "timeZone"
"""The option that names the zone of times without one."""

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
    # Workers have their own working folders: relative paths refer to the driver's.
    return os.fspath(path.absolute())


def broker_addresses(given: Mapping[str, str], option: str, text: str) -> str:
    """Return addresses with the configuration of the options `kafka.…`, after checking both."""
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
    """Refuse an invalid topic name."""
    if not is_topic_name(topic):
        raise InvalidArgumentError(f"option {option}: {topic!r} is not a topic name (letters, digits, '.', '_', '-')")


def json_object(option: str, text: str, expected: str) -> dict[str, object]:
    """Return a JSON object; `expected` is what the error shows besides the text."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise InvalidArgumentError(f"option {option}: {expected}, got {text}")
    return document


def is_integer(value: object) -> bool:
    """Whether a value of a JSON document is an integer, which excludes true and false."""
    return isinstance(value, int) and not isinstance(value, bool)


def time(given: Mapping[str, str], option: str, clock: Clock, *, start_ms: int | None = None) -> int | None:
    """Return a time in epoch ms, None if the option is not given. `+15m` is relative to `start_ms`."""
    text = given.get(option.lower())
    if text is None:
        return None
    try:
        return parse_time(text, clock, zone=given.get(TIME_ZONE.lower()), start_ms=start_ms)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"option {option}: {error}") from None


def choice(given: Mapping[str, str], option: str, choices: tuple[str, ...]) -> str:
    """Return the option's value, which must be one of `choices`; the first choice if the option is not set."""
    text = given.get(option.lower(), choices[0]).strip().lower()
    if text not in choices:
        raise InvalidArgumentError(f"option {option}: {' or '.join(choices)} expected, got {given[option.lower()]!r}")
    return text


def boolean(given: Mapping[str, str], option: str, default: bool | None) -> bool | None:
    """Return whether the option's value is true."""
    text = given.get(option.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise InvalidArgumentError(f"option {option}: true or false expected, got {text!r}")
    return text.strip().lower() == "true"


def positive(given: Mapping[str, str], option: str) -> int | None:
    """Return a positive number, None if the option is not set."""
    text = given.get(option.lower())
    if text is None:
        return None
    if not INTEGER.fullmatch(text.strip()) or int(text) <= 0:
        raise InvalidArgumentError(f"option {option}: a positive number expected, got {text!r}")
    return int(text)


def joined(paths: str) -> str:
    """Return the folders of `load([...])`, which Spark gives as a JSON list, as one address."""
    try:
        found = json.loads(paths)
    except ValueError:
        found = None
    if not isinstance(found, list) or not found or not all(isinstance(one, str) for one in found):
        raise InvalidArgumentError('option paths: a JSON list of folders expected, e.g. ["/d1", "/d2"]', found=paths[:100])
    return os.pathsep.join(found)


_ELSEWHERE = {
    **dict.fromkeys(("topic", "topics"), "subscribe"),
    **dict.fromkeys(("from", "since"), "startTime"),
    **dict.fromkeys(("to", "until"), "endTime"),
    **dict.fromkeys(("servers", "brokers"), "kafka.bootstrap.servers"),
    **dict.fromkeys(("format", "valueformat"), "decode"),
    "keyformat": "keyDecode",
}
"""An option's name in the command line or in other tools → ours."""


def ours_for(name: str) -> str:
    """Return which option was probably meant by a name of the command line or of other tools; an empty string if none."""
    return f" (did you mean {_ELSEWHERE[name]}?)" if name in _ELSEWHERE else ""
