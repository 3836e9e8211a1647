"""Real Apache Kafka for tests and benchmarks: jars from Maven, brokers on 127.0.0.1, their tools and clients.

    from tests.kafka import Kafka391, dump_log_segments

    with Kafka391(folder) as broker:
        broker.create_topic("events", partitions=2, **{"segment.bytes": "65536"})
        ...

`Kafka391` runs Apache Kafka 3.9.1 (KRaft, broker and controller in one process), `Kafka420` 4.2.0; `Kafka241` runs 2.4.1
beside its ZooKeeper. Nothing here is imported by `src/`. `why_not()` returns the reason why Kafka cannot run on this machine,
or None.
"""

from tests.kafka.brokers import Kafka241, Kafka391, Kafka420
from tests.kafka.jars import why_not
from tests.kafka.tools import dump_log_segments, producer_performance

__all__ = ["Kafka241", "Kafka391", "Kafka420", "dump_log_segments", "producer_performance", "why_not"]
