"""A data folder as a source, with its plans, splits and groups."""
