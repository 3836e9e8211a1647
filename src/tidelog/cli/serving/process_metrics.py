"""The metrics of all processes of `tidelog serve --processes` as one page: the samples of every process, labelled with the
broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from urllib.error import URLError
from urllib.request import urlopen

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

logger = logging.getLogger("tidelog.serve")

ANSWER_S = 10.0
"""Seconds that a process may take to send its metrics."""


class ProcessMetrics(Collector):
    """Reads the metrics pages at `addresses` (broker id to address). A process that does not respond is left out."""

    def __init__(self, addresses: Callable[[], Mapping[int, str]]) -> None:
        self._addresses = addresses

    def describe(self) -> list[Metric]:
        """Return an empty list, because the names are known only when the pages are read."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield each metric once, with the samples of all brokers."""
        found: dict[str, Metric] = {}
        for number, address in sorted(self._addresses().items()):
            try:
                with urlopen(f"http://{address}/metrics", timeout=ANSWER_S) as page:
                    text = page.read().decode()
            except (URLError, OSError) as error:
                logger.warning("broker %d: its metrics cannot be read: %s", number, error)
                continue
            for family in text_string_to_metric_families(text):
                metric = found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    metric.add_sample(sample.name, {**sample.labels, "broker": str(number)}, sample.value)
        yield from found.values()
