"""A data folder's own metadata log: writing it, snapshots, and the conversion of older files."""
