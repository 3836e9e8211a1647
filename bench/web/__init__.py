"""The page of `tidelog ui`."""
