"""The data folder's own metadata log: writing, takeover of older files, snapshots."""
