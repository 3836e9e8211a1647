"""A cluster's consumer groups: described, their committed offsets, how far behind they are, and set to a time."""
