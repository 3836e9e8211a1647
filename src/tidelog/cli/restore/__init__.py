"""`tidelog restore`."""
