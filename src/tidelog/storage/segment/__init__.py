"""Writing one segment: its log file, its indexes, and the segments of a log in order. Entry point: `log_segment.LogSegment`."""
