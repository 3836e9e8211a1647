"""The storage engine: writes logs as Apache Kafka 3.9.1 does, keeps them, recovers them, compacts them.

`log_manager` owns a data folder, `partition_log` one partition, `segment` one segment. What the files look like, and how
they are read, is in `tidelog.log`; what a batch looks like, in `tidelog.records`. Synchronous; time comes from a `Clock`.
"""
