"""Records as rows: read from batches, checked, gathered into Arrow's layouts, and encoded again."""
