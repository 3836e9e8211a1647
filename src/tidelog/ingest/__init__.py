"""Files of rows into topics: Parquet, CSV and JSON Lines, read by Arrow, written as Kafka's segments.

Above `storage/`, below `cli/`; `arrow_columns` serves `copying/` and Spark's sink, too. Nothing here writes a segment itself:
batches go to the logs of a `storage.topics.new_topic`.
"""
