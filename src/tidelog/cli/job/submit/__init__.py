"""The program for spark-submit. It is in a separate folder, because Python searches a script's folder first for every import."""
