"""The data folder's own metadata log: written, taken over, kept short."""
