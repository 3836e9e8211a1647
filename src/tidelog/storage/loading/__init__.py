"""A log from what lies in its folder: temporary files removed, crashes recovered. `loader.load` is the way in."""
