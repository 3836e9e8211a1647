"""Topics written by `tidelog import`, and their installation under a Kafka broker.

The admin client creates a topic, whose empty segment is replaced by the imported partitions' files. `partition.metadata` stays,
because it contains the topic's id.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.kafka import Kafka391
from tests.patience import PATIENCE_S

T = 1_600_000_000_000


@dataclass(frozen=True)
class Imported:
    """One import: its input, and its topic's configuration."""

    topic: str
    codec: str
    rows: int
    partitions: int
    segment_bytes: int
    index_interval_bytes: int
    batch_bytes: int

    @property
    def config(self) -> dict[str, str]:
        """Return the settings with which Kafka must create the topic."""
        return {
            "segment.bytes": str(self.segment_bytes),
            "index.interval.bytes": str(self.index_interval_bytes),
            "retention.ms": "-1",
        }

    def write(self, data_dir: Path, source: Path) -> None:
        """Create the source file and run `tidelog import` on it."""
        pq.write_table(self.table(), source)
        options: dict[str, object] = {
            "timestamp": "at",
            "key": "key",
            "value": "value",
            "partitions": self.partitions,
            "codec": self.codec,
            "segment-bytes": self.segment_bytes,
            "index-interval-bytes": self.index_interval_bytes,
            "batch-bytes": self.batch_bytes,
        }
        run_import(data_dir, self.topic, source, options)

    def table(self) -> pa.Table:
        """Return the rows. Timestamps advance by up to a second per row; one in six is late, a few are early. Some keys and
        values are null.
        """
        chance = random.Random(self.topic)
        clock_ms = T
        times, keys, values = [], [], []
        for n in range(self.rows):
            clock_ms += chance.choice((0, 1, 3, 10, 1000))
            draw = chance.random()
            late = -chance.randrange(1, 20_000) if draw < 0.15 else chance.randrange(1, 60_000) if draw < 0.18 else 0
            times.append(clock_ms + late)
            keys.append(None if chance.random() < 0.1 else b"key-%d" % chance.randrange(50))
            values.append(
                None if chance.random() < 0.02 else b"%d " % n + bytes(chance.choices(b"abcdefgh ", k=chance.randrange(120)))
            )
        return pa.table(
            {
                "at": pa.array(times, pa.timestamp("ms", tz="UTC")),
                "key": pa.array(keys, pa.binary()),
                "value": pa.array(values, pa.binary()),
            }
        )


SMALL = {"rows": 4000, "partitions": 2, "segment_bytes": 32_768, "index_interval_bytes": 512, "batch_bytes": 2048}
IMPORTS = [
    *(Imported(f"imported-{codec}", codec, **SMALL) for codec in ("none", "gzip", "snappy", "lz4", "zstd")),
    # Defaults: Kafka's index interval and batch size, more than one segment.
    Imported(
        "imported-plain", "none", rows=60_000, partitions=1, segment_bytes=1 << 20, index_interval_bytes=4096, batch_bytes=16_384
    ),
    # One record a batch: the offset index has an entry for every few of them.
    Imported("imported-singly", "none", rows=1500, partitions=1, segment_bytes=32_768, index_interval_bytes=0, batch_bytes=1),
]


def run_import(data_dir: Path, topic: str, source: Path, options: dict[str, object]) -> None:
    """Run the command and check that it succeeds."""
    command = [sys.executable, "-m", "tidelog", "import", str(data_dir), topic, str(source)]
    command += [text for name, value in options.items() for text in (f"--{name}", str(value))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert done.returncode == 0, done.stderr


def put_under(broker: Kafka391, data_dir: Path, imports: Iterable[Imported], *, suffixes: tuple[str, ...] | None = None) -> None:
    """Create the topics on a running broker, stop it, and give it the imported files (of these suffixes only)."""
    chosen = list(imports)
    for one in chosen:
        broker.create_topic(one.topic, one.partitions, one.config)
    broker.stop()
    for one in chosen:
        for partition in range(one.partitions):
            target = broker.partition_folder(one.topic, partition)
            for path in target.iterdir():
                if path.name != "partition.metadata":
                    path.unlink()
            for path in (data_dir / target.name).iterdir():
                if path.name != "partition.metadata" and (suffixes is None or path.suffix in suffixes):
                    shutil.copy2(path, target)
