"""Segments of which something is known without reading them: `known_segment.py`."""
