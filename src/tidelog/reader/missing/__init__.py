"""What a folder should hold but lacks: seen from what is left, and from other files about a partition."""
