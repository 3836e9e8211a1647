"""The program for spark-submit. It has a folder of its own, because a script's folder is searched first for every import."""
