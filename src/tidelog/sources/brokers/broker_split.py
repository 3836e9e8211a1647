"""A split that is read from brokers: a range of offsets of one partition, fetched from its leader.

If retention deletes records between planning and reading, OffsetOutOfRangeError is raised. If compaction removes records in that
time, the split returns fewer rows without an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from tidelog.client.connections.addresses import config_of
from tidelog.client.connections.cluster import TIMEOUT_MS, Cluster
from tidelog.client.reading.offsets import NotFound, list_offsets
from tidelog.client.reading.partition_fetcher import PartitionFetcher
from tidelog.model import EARLIEST, Isolation, TopicPartition
from tidelog.sources.reader_resources import LocatedBatch, ReaderResources
from tidelog.sources.scan_report import ScanReport
from tidelog.sources.split import Split

CLIENT_ID = "tidelog-scan"


def scan_cluster(brokers: str, timeout_ms: int = TIMEOUT_MS) -> Cluster:
    """Return a connected cluster for a scan of these brokers. Raises InvalidArgumentError, or BrokerUnreachableError on the first
    failed attempt.
    """
    return Cluster.at(brokers, CLIENT_ID, timeout_ms=timeout_ms).reach()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSplit(Split):
    """Offsets `[start_offset, end_offset)` of a partition, and which of their records to return. Small, and can be pickled."""

    brokers: str
    """Some of the cluster's brokers, `host:port` separated by commas."""
    isolation: Isolation

    def batches(self, reading: ReaderResources, report: ScanReport) -> Iterator[LocatedBatch]:
        fetcher = PartitionFetcher(
            self._cluster(reading),
            self._key,
            self.start_offset,
            self.end_offset,
            isolation=self.isolation,
            allocate=reading.chunks.take,
        )
        bytes_read = 0
        try:
            for batch in fetcher:
                if fetcher.bytes_read != bytes_read:
                    report.bytes_read += fetcher.bytes_read - bytes_read
                    bytes_read = fetcher.bytes_read
                yield batch
        finally:
            report.bytes_read += fetcher.bytes_read - bytes_read
            report.batches += fetcher.batches
            report.aborted_batches += fetcher.aborted_batches

    def after_loss(self, reached: int, reading: ReaderResources) -> BrokerSplit | None:
        start = list_offsets(self._cluster(reading), {self._key: EARLIEST})[self._key]
        if isinstance(start, NotFound) or not reached < start.offset < self.end_offset:
            return None
        return replace(self, start_offset=start.offset)

    @property
    def _key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def _cluster(self, reading: ReaderResources) -> Cluster:
        return reading.connection((self.brokers, config_of(self.brokers)), partial(scan_cluster, self.brokers))

    def __str__(self) -> str:
        return f"{self.brokers} {self.topic}-{self.partition} offsets {self.start_offset:,}..{self.end_offset:,}"
