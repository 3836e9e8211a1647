"""Writes Spark rows to Kafka logs: `write` and `writeStream` of `format("tidelog")`.

| module | does |
|---|---|
| `sink_options` | the user's options |
| `column_rules` | which columns can be written |
| `row_batches`, `header_columns` | turns Arrow columns into finished batches, in the tasks |
| `spool` | passes batches from tasks to the driver |
| `epochs` | which micro-batch a target already has |
| `broker_target` | brokers: in transactions, or at least once |
| `task_transactions` | transactions that tasks begin and the driver ends |
| `folder_target` | a data folder: whole segments, committed by a rename |
| `writers` | the objects that Spark calls |
"""
