"""Damaged segments: what is sound in them, and a segment that shows only that."""
