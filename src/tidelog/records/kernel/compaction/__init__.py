"""Finds each key's latest offset, and marks and copies the records that compaction therefore keeps."""
