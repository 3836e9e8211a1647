"""The broker that copies go to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidelog


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tidelog.Broker]:
    folder: Path = tmp_path_factory.mktemp("target") / "data"
    # Records here are years old, and are to stay.
    options: dict[str, Any] = {
        "offsets_topic_num_partitions": 1,
        "transaction_state_log_num_partitions": 1,
        "log_retention_ms": -1,
    }
    with tidelog.Broker(data_dir=folder, **options) as running:
        yield running
