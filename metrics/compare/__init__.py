"""Comparable runs: by how much they differ, and what changed over time."""
