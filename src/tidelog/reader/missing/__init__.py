"""Finds data that a folder should contain but does not, from the remaining files and the checkpoints."""
