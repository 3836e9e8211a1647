"""Data folders in object storage."""
