"""Comparable runs: their differences, and changes over time."""
