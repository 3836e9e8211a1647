"""Batches, without a look at each record: checksums, the walk over a segment, times for a time map."""
