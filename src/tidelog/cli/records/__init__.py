"""What `cat` does with records between the plan and the output: selects, sorts, counts and formats Arrow batches."""
