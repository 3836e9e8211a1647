"""One segment, written: its log file, its indexes, and the segments of a log in order. `log_segment.LogSegment` is the way in."""
