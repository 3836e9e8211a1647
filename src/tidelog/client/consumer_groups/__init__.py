"""A cluster's consumer groups: descriptions, committed offsets, lag, resets."""
