"""The program for spark-submit. It has its own folder, because a script's folder is searched first for every import."""
