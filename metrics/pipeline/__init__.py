"""Metrics of all runs: computed, stored, and kept up to date."""
