"""Which offset is each key's latest, and which records therefore stay."""
