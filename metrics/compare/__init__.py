"""Which runs are comparable, by how much they differ, and what changed over time."""
