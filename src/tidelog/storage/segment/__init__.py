"""One segment, written: its log file, its indexes, and the segments of a log in order. `segment.LogSegment` is the way in."""
