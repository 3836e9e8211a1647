"""Finds data that should be in a folder but is missing. The remaining files and the checkpoints provide the evidence."""
