"""A replay without Spark, in its own process, which a test kills. It prints each step on stdout, and waits before each for a line
on stdin, until stdin ends.

python -m tests.interop.replay_program SOURCE TOPIC TARGET TARGET_TOPIC FROM_MS TO_MS FOLDER CHUNK_BYTES
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from tidelog.client.produce.batch_appender import BatchAppender
from tidelog.copying.copier import copy_partition
from tidelog.copying.offset_map import OffsetMapWriter
from tidelog.copying.replay import ReplayRequest, prepare


def main(source: str, topic: str, target: str, target_topic: str, from_ms: str, to_ms: str, folder: str, chunk: str) -> None:
    for owner, method in (
        (BatchAppender, "begin"),
        (BatchAppender, "send_offsets"),
        (BatchAppender, "commit"),
        (OffsetMapWriter, "stage"),
        (OffsetMapWriter, "confirm"),
    ):
        _tell(owner, method)
    request = ReplayRequest(source, topic, target, target_topic, int(from_ms), int(to_ms))
    _, tasks = prepare(request, folder)
    for task in tasks:
        copy_partition(replace(task, chunk_bytes=int(chunk)))
    print("done", flush=True)


def _tell(owner: Any, method: str) -> None:
    plain = getattr(owner, method)

    def call(self: Any, *args: Any, **how: Any) -> Any:
        sys.stdin.readline()
        print(method, flush=True)
        return plain(self, *args, **how)

    setattr(owner, method, call)


if __name__ == "__main__":
    main(*sys.argv[1:])
