"""A Kafka-compatible log that you can read by time.

| name | what it is |
|---|---|
| scan | every record of a time range, exactly, as a stream of Arrow batches |
| Broker | a broker inside this process, for any Kafka client |
| connect, NewRecord | a client of any Kafka-compatible broker: offsets for times, produce with timestamps, read from a time |
| ScanReport | what such a scan met: records without timestamp, records past the high watermark |
| LogDir, Log | a data folder that a Kafka broker wrote, and one partition of it, read-only |
| find_offset, FoundOffset, NotFound | the first offset for a timestamp, as Kafka's ListOffsets answers |
| errors, TidelogError | every error that is raised |
| __version__ | |

Each is imported when it is first used: `import tidelog` itself costs milliseconds and loads
none of numpy, pyarrow, pyspark, asyncio.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if os.name == "nt":
    raise ImportError("Tidelog runs on Linux and macOS, not on Windows; the Windows Subsystem for Linux (WSL) is a Linux.")

if TYPE_CHECKING:
    from tidelog import errors as errors
    from tidelog.broker.broker import Broker as Broker
    from tidelog.client.client import NewRecord as NewRecord
    from tidelog.client.client import connect as connect
    from tidelog.client.reading.offsets import NotFound as NotFound
    from tidelog.errors import TidelogError as TidelogError
    from tidelog.reader.log import Log as Log
    from tidelog.reader.log_dir import LogDir as LogDir
    from tidelog.reader.time_search import FoundOffset as FoundOffset
    from tidelog.reader.warned_search import find_offset as find_offset
    from tidelog.sources.report import ScanReport as ScanReport
    from tidelog.sources.stream import scan as scan

    __version__: str

_HOMES = {
    "Broker": "tidelog.broker.broker",
    "FoundOffset": "tidelog.reader.time_search",
    "Log": "tidelog.reader.log",
    "LogDir": "tidelog.reader.log_dir",
    "NewRecord": "tidelog.client.client",
    "NotFound": "tidelog.client.reading.offsets",
    "ScanReport": "tidelog.sources.report",
    "TidelogError": "tidelog.errors",
    "connect": "tidelog.client.client",
    "find_offset": "tidelog.reader.warned_search",
    "scan": "tidelog.sources.stream",
}

__all__ = [
    "Broker",
    "FoundOffset",
    "Log",
    "LogDir",
    "NewRecord",
    "NotFound",
    "ScanReport",
    "TidelogError",
    "__version__",
    "connect",
    "errors",
    "find_offset",
    "scan",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("tidelog")
    elif name == "errors":
        value = import_module("tidelog.errors")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'tidelog' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
