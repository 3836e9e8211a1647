"""`make bench`: every benchmark in turn; a table of ratios at the end. Exit code 1 if a target is missed."""

from __future__ import annotations

import importlib
import sys

BENCHMARKS = (
    "kernel_bench",
    "wire_bench",
    "append_bench",
    "recovery_bench",
    "index_job_bench",
    "open_bench",
    "topics_bench",
    "scan_bench",
    "time_range_bench",
    "cli.decoding_bench",
    "cli.command_bench",
    "cli.sql_bench",
    "find_bench",
    "pipeline_bench",
    "lookup_bench",
    "broker_bench",
    "tls_bench",
    "group_bench",
    "cluster_bench",
    "cluster.zookeeper_faults",
    "broker.compaction_bench",
    "broker.background_bench",
    "stall_bench",
    "many_cores_bench",
    "web.page_bench",
    "objects.bucket_bench",
)


def main() -> int:
    missed = []
    for name in sys.argv[1:] or BENCHMARKS:
        print(f"\n== {name}", flush=True)
        if importlib.import_module(f"bench.{name.removesuffix('.py')}").main([]):
            missed.append(name)
    print("\nfor docs/benchmarks.md: python -m bench.charts --measured 'DATE, MACHINE'")
    if missed:
        print(f"\nbelow target: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
