"""Reads around damage: finds the sound batches of a damaged segment, and shows only these batches."""
