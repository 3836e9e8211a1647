"""Short cuts for what nearly every call meets; for anything else they answer None, and plain Python does the work."""
