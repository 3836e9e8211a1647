"""What a crash leaves: processes killed in the middle of writing, and disks that lost what was not synced."""
