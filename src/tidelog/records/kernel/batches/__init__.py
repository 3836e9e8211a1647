"""Kernels that process whole batches, not each record: checksums, the walk over a segment, times for a time map."""
