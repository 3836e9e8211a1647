"""Writes Spark rows to Kafka logs: `write` and `writeStream` of `format("tidelog")`.

| module | does |
|---|---|
| `sink_options` | parses the user's options |
| `column_rules` | checks which columns can be written |
| `row_batches`, `header_columns` | turn Arrow columns into finished batches, in the tasks |
| `spool` | passes batches from tasks to the driver |
| `epochs` | detects micro-batches that a target already has |
| `broker_target` | writes to brokers, in transactions or at least once |
| `task_transactions` | manages transactions that tasks begin and the driver ends |
| `folder_target` | writes to a data folder: whole segments, committed by a rename |
| `writers` | has the objects that Spark calls |
"""
