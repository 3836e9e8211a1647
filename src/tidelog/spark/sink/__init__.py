"""Spark rows into Kafka logs: `write` and `writeStream` of `format("tidelog")`.

| module | does |
|---|---|
| `sink_options` | what the user said |
| `column_rules` | which columns can be written |
| `row_batches`, `header_columns` | Arrow columns into finished batches, in the tasks |
| `spool` | what tasks hand to the driver |
| `epochs` | which micro-batch a target has already |
| `broker_target` | to brokers: one transaction a commit, or sent by the tasks |
| `folder_target` | to a data folder: whole segments, committed by a rename |
| `writers` | the objects that Spark calls |
"""
