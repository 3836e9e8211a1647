"""The options of `cat`, and the work on the records that it reads: selects, sorts, counts and formats Arrow batches."""
