"""Segments with facts that are known before the segment is read (`known_segment.py`)."""
