"""`spark.readStream.format("tidelog")`: reads a growing log in micro-batches.

| module | owns |
|---|---|
| `stream_options` | the options of a stream |
| `offsets` | a stream's position as JSON, in the connector's form |
| `admission` | how many of the available records a batch takes; pure |
| `batch_ranges` | which offsets a batch reads, and which were lost; pure |
| `stream_tasks` | the tasks of a batch, and how one is read |
| `stream_reader` | what Spark calls |
"""
