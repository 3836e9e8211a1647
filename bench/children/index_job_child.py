"""Rebuilds a folder's indexes on Spark once, in a separate process; called by `index_job_bench`.

    python -m bench.children.index_job_child DATA --master local[2] [--time-maps]

Prints one JSON line: the seconds of the session's start (JVM, session, workers) and of the session's first job; the numbers of
files and faults.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from tidelog.spark.jobs.indexes import rebuild_indexes
from tidelog.spark.jobs.job_session import job_session


def main() -> int:
    parser = argparse.ArgumentParser(description="one rebuild on Spark")
    parser.add_argument("data")
    parser.add_argument("--master", required=True)
    parser.add_argument("--time-maps", action="store_true")
    options = parser.parse_args()
    began = time.perf_counter()
    with job_session("index_job_bench", options.master) as spark:
        started = time.perf_counter()
        result = rebuild_indexes(spark, options.data, time_maps=options.time_maps)
        ended = time.perf_counter()
        new = sum(row[result.summary.columns.index("new")] for row in result.summary.rows)
    print(json.dumps({"session_s": started - began, "job_s": ended - started, "new": new, "faults": result.faults}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
