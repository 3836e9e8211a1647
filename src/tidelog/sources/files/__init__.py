"""A data folder as a source: the source and its plans, splits and groups."""
