"""What a folder should hold and does not: seen from what is left, and from what else the folder says of a partition."""
