"""The soak of a cluster: clients write and read while brokers and controllers fail, one fault after another.

| | |
|---|---|
| `schedule.py` | which faults, drawn from a seed |
| `controller_proxies.py`, `small_disk.py` | how a broker is cut off from the controllers, and how its disk fills |
| `soak_cluster.py` | three controllers of Apache Kafka, three brokers, and what a fault does to them |
| `senders.py`, `group_reader.py` | what clients write and read, and what they were promised |
| `time_answers.py` | offsets for times, from each elected leader |
| `judge.py` | whether every promise was kept, and replicas are equal |
| `soak.py` | the whole of it |
"""
