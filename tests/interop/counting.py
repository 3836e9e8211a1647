"""Counts into a topic in transactions and keeps its position in a group: each number is committed once, however often it is
killed.

    python -m tests.interop.counting BOOTSTRAP MORE

prints the position after each commit, and ends after `MORE` numbers.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import tidelog
from tidelog.client.connections.cluster import Cluster
from tidelog.client.consumer_groups.committed import committed_offsets
from tidelog.client.produce.batch_appender import BatchAppender
from tidelog.model import TopicPartition
from tidelog.records.builder import build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.records import Record

TOPIC = "counted"
GROUP = "counter"
PARTITIONS = 3
TIME_MS = 1_700_000_000_000


def count(
    cluster: Cluster,
    topic: str,
    transactional_id: str,
    rng: random.Random,
    more: int,
    is_over: Callable[[], bool] = lambda: False,
    told: Callable[[int], object] = lambda position: None,
) -> None:
    """Count on by `more` numbers. Some transactions are aborted on the way; `told` hears each position that was committed."""
    keys = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    with BatchAppender(cluster, transactional_id=transactional_id, transaction_timeout_ms=600_000) as appender:
        appender.init()
        position, _ = committed_offsets(cluster, GROUP, keys).get(keys[0], (0, ""))
        end = position + more
        while position < end and not is_over():
            appender.begin()
            next_position = position
            for _ in range(rng.randrange(1, 20)):
                values = range(next_position, next_position + rng.randrange(1, 5))
                records = [Record(i, TIME_MS + value, 0, None, b"%d" % value) for i, value in enumerate(values)]
                appender.append(rng.choice(keys), build_batch_v2(records, codec=rng.choice([Codec.NONE, Codec.LZ4])))
                next_position = values.stop
            appender.send_offsets(GROUP, {keys[0]: (next_position, "")})
            if rng.random() < 0.2:
                appender.abort()
                continue
            appender.commit()
            position = next_position
            told(position)


def main(bootstrap: str, more: str) -> None:
    with tidelog.connect(bootstrap) as client:
        count(client.cluster, TOPIC, "counter", random.Random(), int(more), told=lambda position: print(position, flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
