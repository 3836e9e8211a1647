"""``tidelog-served.json``: the topic defaults with which a broker last served the folder. Kafka ignores it.

::

    {"version": 1, "time_ms": 1700000000000, "broker_epoch": null, "properties": {"retention.ms": "86400000"}}

`properties` are the defaults that were set for the broker, under the topics' names; all others have Kafka's defaults. Nothing
else of the broker's configuration is stored. `broker_epoch` is the epoch of the node's registration in the metadata log. Each
start of Kafka on the folder changes the epoch, which shows that Kafka has served the folder with settings that are not stored in
it.

The settings are not stored in the metadata log, because settings there would take precedence over the `server.properties` of the
next owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tidelog.config import LogConfig, PropertyValue
from tidelog.errors import CorruptCheckpointError, InvalidArgumentError
from tidelog.formats.json_files import read_json, write_json
from tidelog.formats.paths.file_path import FilePath

SERVED_FILE = "tidelog-served.json"
VERSION = 1
_WHAT = "the settings that the folder was served with"


class ServedSettings(NamedTuple):
    """The settings that a folder was last served with."""

    time_ms: int
    """When the broker began to serve (epoch ms)."""
    broker_epoch: int | None
    properties: Mapping[str, str]

    @classmethod
    def of(cls, time_ms: int, broker_epoch: int | None, properties: Mapping[str, PropertyValue]) -> ServedSettings:
        """Create the settings to store: `properties` with their values as text."""
        texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in properties.items()}
        return cls(time_ms, broker_epoch, texts)


def read_served_settings(directory: FilePath) -> ServedSettings | None:
    """Return the settings that the folder was last served with, or None if they are not stored. Raises CorruptCheckpointError,
    StorageError.
    """
    path = directory / SERVED_FILE
    content = read_json(path, VERSION, _WHAT)
    if content is None:
        return None
    time_ms, epoch, properties = content.get("time_ms"), content.get("broker_epoch"), content.get("properties")
    if not isinstance(time_ms, int) or not isinstance(epoch, int | None) or not isinstance(properties, dict):
        raise CorruptCheckpointError(
            f"{_WHAT}: the file needs a time, a broker epoch and properties", path=path, found=repr(content)[:200]
        )
    properties = {name: str(value) for name, value in properties.items()}
    try:
        LogConfig.from_properties(properties)
    except InvalidArgumentError as error:
        raise CorruptCheckpointError(f"{_WHAT}: {error}", path=path) from None
    return ServedSettings(time_ms, epoch, properties)


def write_served_settings(directory: Path, settings: ServedSettings) -> None:
    """Store the settings with which the folder is served from now on. Raises StorageError."""
    write_json(directory / SERVED_FILE, VERSION, settings._asdict())
