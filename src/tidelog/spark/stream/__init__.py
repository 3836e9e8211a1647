"""`spark.readStream.format("tidelog")`: the log as it grows, in micro-batches.

| module | owns |
|---|---|
| `stream_options` | the options of a stream |
| `offsets` | a stream's position as JSON, the connector's |
| `admission` | how much of what is there a batch takes; pure |
| `batch_ranges` | which offsets a batch reads, and what was lost; pure |
| `stream_tasks` | the tasks of a batch, and how one is read |
| `stream_reader` | what Spark calls |
"""
