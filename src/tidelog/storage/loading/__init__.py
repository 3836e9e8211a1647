"""A log from what lies in its folder: leftovers cleared, crashes recovered. `loader.load` is the way in."""
