"""A mirror without Spark, in its own process, which a test kills. It follows the source and prints each round on stdout.

python -m tests.interop.mirror_program SOURCE TARGET FOLDER TOPIC CHUNK_BYTES
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tests.spark.mirroring import NoSpark
from tidelog.spark.jobs import mirror as job


def main(source: str, target: str, folder: str, topic: str, chunk_bytes: str) -> None:
    def run_here(spark: Any, what: str, tasks: Sequence[Any], work: Any, progress: Any = None) -> Iterable[Any]:
        return [row for task in tasks for row in work(replace(task, chunk_bytes=int(chunk_bytes)))]

    def round_done() -> bool:
        print("round", flush=True)
        return False

    job.run_tasks = run_here  # type: ignore[attr-defined,assignment]
    options = job.MirrorOptions(source=source, target=target, map_dir=folder, topics=(topic,), groups=None)
    job.mirror(NoSpark(), options, follow=True, pause_ms=20, is_done=round_done)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(*sys.argv[1:])
