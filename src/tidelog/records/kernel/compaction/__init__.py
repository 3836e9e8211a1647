"""Each key's latest offset, and the records that are therefore kept."""
