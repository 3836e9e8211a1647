"""Fast paths for the common cases; for anything else they return None, and plain Python does the work."""
