"""Files of rows into topics: Parquet, CSV and JSON Lines, read by Arrow, written as Kafka's segments.

Above `log/`, beside the scan, below `cli/`. Nothing here writes a segment itself: batches go to `log.partition_writer`.
"""
