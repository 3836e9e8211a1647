"""Folders and brokers as sources: exact time or offset ranges of one or many partitions, planned, split, read as Arrow.

`tidelog.scan` is the front door. Behind it: `plan` decides which batches of which segments must be read and cuts them into
splits, `reader` turns a split into Arrow batches, `stream` strings the splits of a plan together. Spark takes the first two.

The package is not called `scan`, so that `tidelog.scan` stays a function (docs/decisions/0006).
"""
