"""Finds data that should be in a folder but is not, from the remaining files and the checkpoints."""
