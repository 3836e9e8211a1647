"""Topics of a data folder: creation, more partitions, configuration, adoption, deletion; settings and statistics."""
