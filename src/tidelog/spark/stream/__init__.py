"""`spark.readStream.format("tidelog")`: reads a growing log in micro-batches.

| module | has |
|---|---|
| `stream_options` | the options of a stream |
| `offsets` | a stream's position as JSON, in the connector's form |
| `admission` | pure functions: how many of the available records a batch takes |
| `batch_ranges` | pure functions: which offsets a batch reads, and which were lost |
| `stream_tasks` | the tasks of a batch, and how a task is read |
| `stream_reader` | the stream reader that Spark calls |
"""
