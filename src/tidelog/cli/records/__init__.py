"""Processes records of `cat` between plan and output: selects, sorts, counts and formats Arrow batches."""
