"""A Kafka-compatible log that you can read by time.

| name | what it is |
|---|---|
| scan | every record of a time range, exactly, as a stream of Arrow batches |
| Broker | a broker inside this process, for any Kafka client |
| connect, NewRecord | a client of any Kafka-compatible broker: offsets for times, produce with timestamps, read from a time |
| sql | an SQL query over topics, as a DuckDB relation |
| ScanReport | the counts of a scan: records without a timestamp that it left out, records past the high watermark |
| LogDir, Log | a Kafka broker's data folder, and one partition in it, read-only |
| find_offset, FoundOffset, NotFound | the first offset for a timestamp, with the same result as Kafka's ListOffsets |
| errors, TidelogError | every error that Tidelog raises |
| __version__ | the version of Tidelog |

Each name is imported on first use: `import tidelog` itself takes milliseconds and does not load numpy, pyarrow, pyspark or
asyncio.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidelog.lazy_exports import lazy_exports

if os.name == "nt":
    raise ImportError("Tidelog runs on Linux and macOS, not on Windows. Use the Windows Subsystem for Linux (WSL) there.")

if TYPE_CHECKING:
    from tidelog import errors as errors
    from tidelog.broker.broker import Broker as Broker
    from tidelog.client.client import NewRecord as NewRecord
    from tidelog.client.client import connect as connect
    from tidelog.client.reading.offsets import NotFound as NotFound
    from tidelog.errors import TidelogError as TidelogError
    from tidelog.queries.session import sql as sql
    from tidelog.reader.log import Log as Log
    from tidelog.reader.log_dir import LogDir as LogDir
    from tidelog.reader.time_search import FoundOffset as FoundOffset
    from tidelog.reader.warned_search import find_offset as find_offset
    from tidelog.sources.scan_report import ScanReport as ScanReport
    from tidelog.sources.stream import scan as scan

    __version__: str

_exported = lazy_exports(
    __name__,
    {
        "tidelog.broker.broker": ("Broker",),
        "tidelog.client.client": ("NewRecord", "connect"),
        "tidelog.client.reading.offsets": ("NotFound",),
        "tidelog.errors": ("TidelogError",),
        "tidelog.queries.session": ("sql",),
        "tidelog.reader.log": ("Log",),
        "tidelog.reader.log_dir": ("LogDir",),
        "tidelog.reader.time_search": ("FoundOffset",),
        "tidelog.reader.warned_search": ("find_offset",),
        "tidelog.sources.scan_report": ("ScanReport",),
        "tidelog.sources.stream": ("scan",),
    },
)

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
    "sql",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("tidelog")
    elif name == "errors":
        value = import_module("tidelog.errors")
    else:
        return _exported(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
