"""Imports files of rows into topics: Parquet, CSV and JSON Lines, read by Arrow, written as Kafka's segments.

Above `storage/`, below `cli/`; `copying/` and Spark's sink also use `arrow_columns`. Nothing here writes segments directly:
batches go to the logs of a `storage.topics.new_topic`.
"""
