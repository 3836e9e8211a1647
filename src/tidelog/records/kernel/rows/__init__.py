"""Records as rows: read from batches, judged, gathered into Arrow's layouts, and written again."""
