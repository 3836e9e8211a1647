"""The summary of a partition's segments: `segment_summary.py` its format, `known_segments.py` when it is believed."""
