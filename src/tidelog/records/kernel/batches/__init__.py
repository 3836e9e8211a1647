"""Work on whole batches, not on each record: checksums, the walk over a segment, times for a time map."""
