"""The job `replay` whose target refuses timestamps, without Spark: tasks run here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tidelog.clock import ManualClock
from tidelog.copying.replay import ReplayRequest
from tidelog.errors import InvalidTimestampError
from tidelog.spark.jobs import replay as job

NOW = 1_700_000_000_000
DAY = 86_400_000


def tasks_here(spark: None, what: str, tasks: Sequence[Any], work: Callable[[Any], Iterable[Any]], progress: None) -> list[Any]:
    return [row for task in tasks for row in work(task)]


def test_times_of_the_future_are_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "run_tasks", tasks_here)
    with tidelog.Broker(tmp_path / "data", clock=ManualClock(NOW)) as broker:
        broker.create_topic("source")
        broker.create_topic("target", **{"message.timestamp.after.max.ms": 1000})
        with tidelog.connect(broker.bootstrap_servers) as client:
            client.produce("source", b"x", timestamp=NOW + DAY)
        brokers = broker.bootstrap_servers
        request = ReplayRequest(source=brokers, topic="source", target=brokers, target_topic="target")
        with pytest.raises(InvalidTimestampError) as raised:
            job.replay(None, request, tmp_path / "map")  # type: ignore[arg-type]  # no session is needed
    said = str(raised.value)
    assert "2023-11-15T22:13:20.000Z is after 2023-11-14T22:13:21.000Z, the latest that message.timestamp.after.max.ms" in said
    assert "change these and run again, or leave the records out (--from, --to, with a new --map)" in said
