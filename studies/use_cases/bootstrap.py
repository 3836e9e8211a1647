"""Use case 2: bootstrap. A database is dumped into a topic, and a consumer wants to read its last three days again.

The rows were created over the last 30 days, a few hundred a day. The dump takes a millisecond per row and ends now; a day of live
messages follows. The consumer wants the messages with a CreateTime in the last three days. It searches for the start of that
period at once, and again a day later. A dump is ordered by time, or by the rows' keys, which are independent of time.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from studies.case import Case, Measurement
from studies.use_cases.clusters import CREATE_TIME, LOG_APPEND_TIME, Cluster, Tally, cluster
from studies.workload import DAY_MS, EPOCH_MS, Messages, Workload, generate

BOOTSTRAP = "bootstrap"
ORDERS = ("dumped by time", "dumped by key")
DAYS = 30
WANTED_MS = 3 * DAY_MS
VALUE_BYTES = 100

FILTERED = "LogAppendTime, older rows left out of the dump"
SUBJECTS = (CREATE_TIME, LOG_APPEND_TIME, FILTERED)
MOMENTS = ("at once", "a day later")


def dump(case: Case) -> Messages:
    """Return the database's rows in order of arrival."""
    random = np.random.default_rng(int(case.parameters["seed"]))
    records = int(case.parameters["records"])
    made = np.sort(EPOCH_MS - random.integers(0, DAYS * DAY_MS, records))
    if case.name == "dumped by key":
        made = random.permutation(made)
    arrival = EPOCH_MS + np.arange(1 - records, 1, dtype=np.int64)
    return Messages(np.arange(records, dtype=np.int64), made, made, arrival, VALUE_BYTES)


def live(case: Case) -> Workload:
    """Return the messages of the day after the dump."""
    records = max(1, int(case.parameters["records"]) // DAYS)
    # Slightly fewer messages than fit into a day, so that the last one arrives before the day ends.
    return Workload("after the dump", int(case.parameters["seed"]) + 1, records, 0.9 * DAY_MS / records)


def measure(case: Case, work_dir: Path) -> list[Measurement]:
    """Search for the last three days on each type of topic."""
    tally = Tally(case.part, case.name)
    rows = dump(case)
    recent = rows.create_ms >= EPOCH_MS - WANTED_MS
    fewer = Messages(rows.numbers[recent], rows.made_ms[recent], rows.create_ms[recent], rows.arrival_ms[recent], VALUE_BYTES)
    for subject in SUBJECTS:
        with cluster(work_dir / subject.replace(" ", "-"), CREATE_TIME if subject == CREATE_TIME else LOG_APPEND_TIME) as one:
            one.append(fewer if subject == FILTERED else rows)
            _reprocess(tally, subject, MOMENTS[0], one, EPOCH_MS)
            one.append(generate(live(case)))
            _reprocess(tally, subject, MOMENTS[1], one, EPOCH_MS + DAY_MS)
    return tally.measurements()


def _reprocess(tally: Tally, subject: str, moment: str, one: Cluster, now_ms: int) -> None:
    since_ms = now_ms - WANTED_MS
    start = one.start_offset(since_ms)
    is_wanted = one.messages.create_ms >= since_ms
    tally.add(subject, f"wanted {moment}", int(is_wanted.sum()))
    tally.add(subject, f"in the log {moment}", len(one.messages))
    tally.add(subject, f"missed {moment}", int(is_wanted[:start].sum()))
    tally.add(subject, f"read for nothing {moment}", int((~is_wanted)[start:].sum()))
    tally.add(subject, f"unlike brute force {moment}", start != one.expected_start(since_ms), "searches")
