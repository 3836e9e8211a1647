"""Groups and transactions compared with Apache Kafka 3.9.1: the same clients, one run, one broker after the other; medians.

    python -m bench.group_bench [--runs 3] [--only PART …] [--scale 1.0] [--json]

`--only` takes parts of the cases' names. Needs Java, Maven and a C compiler. An empty group does not wait for further members
(`group.initial.rebalance.delay.ms=0`). Processor time is the broker's: in ms for cases that are reported in ms, otherwise in
seconds per million requests or per gigabyte of records. `--scale 0.2` is a trial.
"""

from __future__ import annotations

import sys
from typing import Any

from bench.broker import group_cases
from bench.broker.cases import Case
from bench.broker.group_loading import loading
from bench.broker.side_by_side import arguments_of, compare

PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
MEMBERS = 100
GROUPS = 300


def catalogue(scale: float) -> list[Case]:
    """Return the cases; `scale` multiplies bytes, seconds and repetitions."""
    s = max(0.5, 3 * scale)
    rounds, mb = max(3, int(20 * scale)), max(4, int(200 * scale))
    lines: list[tuple[str, str, float | None, bool, Any]] = [
        (f"{MEMBERS} members come to a new group", "ms", 1.5, False, group_cases.new_group(MEMBERS)),
        (f"a group of {MEMBERS} members is rebalanced", "ms", 1.5, False, group_cases.rebalanced(MEMBERS, rounds)),
        (f"heartbeats of {GROUPS} groups", "req/s", None, True, group_cases.heartbeats(GROUPS, s)),
        ("commits of 1 group, 1 partition", "req/s", None, True, group_cases.commits(1, 1, s)),
        (f"commits of {GROUPS} groups, 1 partition", "req/s", None, True, group_cases.commits(GROUPS, 1, s)),
        (f"commits of {GROUPS} groups, 10 partitions", "req/s", None, True, group_cases.commits(GROUPS, 10, s)),
        (f"fetches of offsets, {GROUPS} groups, 10 partitions", "req/s", None, True, group_cases.offset_fetches(GROUPS, 10, s)),
        (
            "idempotent produce, 16 KiB batches",
            "MB/s",
            None,
            True,
            group_cases.transactional_produce(16_384, mb, is_transactional=False),
        ),
        ("transactional produce, 16 KiB batches", "MB/s", None, True, group_cases.transactional_produce(16_384, mb)),
        (
            "transactions of 10 records, librdkafka",
            "tx/s",
            None,
            True,
            group_cases.client_transactions(10, max(20, int(300 * scale))),
        ),
        (
            "transactions of 1,000 records, librdkafka",
            "tx/s",
            None,
            True,
            group_cases.client_transactions(1000, max(10, int(100 * scale))),
        ),
        ("start with 2,000 groups of 50 offsets, all fetched", "s", 1.0, False, loading(max(20, int(2000 * scale)), 50)),
    ]
    return [Case(*line) for line in lines]


def main(arguments: list[str] | None = None) -> int:
    options = arguments_of("groups and transactions beside Apache Kafka 3.9.1").parse_args(arguments)
    return compare(catalogue(options.scale), options, table="groups", folder="{name}-groups", properties=PROPERTIES)


if __name__ == "__main__":
    sys.exit(main())
