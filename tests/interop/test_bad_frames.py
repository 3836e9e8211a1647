"""Kafka does about bad frames what `tests/broker/bad_frames.py` says it does, and so what Tidelog does."""

from __future__ import annotations

from pathlib import Path

from tests.broker.bad_frames import BAD_FRAMES
from tests.kafka.brokers import Kafka391


def test_kafka_does_the_same(tmp_path: Path) -> None:
    with Kafka391(tmp_path) as kafka:
        seen = {bad.name: bad.seen(("127.0.0.1", kafka.port), 5) for bad in BAD_FRAMES}
    assert seen == {bad.name: bad.verdict for bad in BAD_FRAMES}
