"""Imports files of rows into topics: Parquet, CSV and JSON Lines files are read with Arrow and written as Kafka's segments.

This package is above `storage/` and below `cli/`. `copying/` and Spark's sink also use `arrow_columns`. It does not write
segments itself: batches are appended to the logs of a `storage.topics.new_topic`.
"""
