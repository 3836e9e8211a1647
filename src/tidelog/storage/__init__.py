"""The storage engine: writes logs as Apache Kafka 3.9.1 does, keeps them, recovers them, compacts them.

`log_manager.LogManager` owns a data folder, `partition_log.PartitionLog` one partition, `segment.LogSegment` one segment::

    with LogManager("/var/lib/tidelog", SystemClock()) as manager:
        manager.create_topic("orders", 4, {"retention.ms": -1})
        manager.log("orders", 0).append_as_leader(records, leader_epoch=0)

docs/storage.md says how it is used. What the files look like is in `tidelog.formats`, how anybody's are read in `tidelog.reader`;
what a batch looks like, in `tidelog.records`. Synchronous, but for threads that load many logs side by side; time comes from a
`Clock`, background work is done in `tick`.
"""
