"""The summary of a partition's segments: `segment_summary.py` has its format, `known_segments.py` decides when it is used."""
