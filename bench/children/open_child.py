"""The process that `open_bench` starts for each of Tidelog's rounds, and the functions that measure a process. It imports only
what is measured.

python -m bench.children.open_child DIR      one JSON line; the folder is closed cleanly after it
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

KINDS = (".log", ".index", ".timeindex")
FAR_FUTURE_MS = 2**62


def main(data: Path) -> dict[str, Any]:
    """Start the log manager, measure this process, and stop."""
    from tidelog.clock import SystemClock
    from tidelog.storage.log_manager import LogManager

    logging.getLogger("tidelog").setLevel(logging.ERROR)  # The topics' configuration is unknown; this is expected.
    manager = LogManager(data, SystemClock())
    begin = time.monotonic()
    manager.startup()
    end = time.monotonic()
    pid = os.getpid()
    found: dict[str, Any] = {
        "load_s": end - begin,
        "start_s": end - process_start_s(pid),
        "memory_mb": memory_mb(pid),
        "after_load": open_files(pid, data),
    }
    for log in manager.logs.values():
        if log.fetch_offset_by_timestamp(FAR_FUTURE_MS) is not None:
            raise RuntimeError("a record of the far future")
    found["after_look_up"] = open_files(pid, data)
    manager.shutdown()
    return found


def process_start_s(pid: int) -> float:
    """Return when a process was started, on the clock of `time.monotonic`, which counts from the boot like /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match is not None
    return int(match[1]) / 1024


def open_files(pid: int, data: Path) -> dict[str, dict[str, int]]:
    """Count descriptors and maps of the data folder's segments by kind of file."""
    descriptors: Counter[str] = Counter()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = link.readlink()
        except OSError:
            continue  # The descriptor was closed meanwhile.
        if data in target.parents:
            descriptors[target.suffix] += 1
    maps: Counter[str] = Counter()
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        path = line.partition("/")
        if (path[1] + path[2]).startswith(str(data)):
            maps[Path(path[2]).suffix] += 1
    return {kind: {"descriptors": descriptors[kind], "maps": maps[kind]} for kind in KINDS}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
