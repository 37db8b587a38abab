"""All metrics of all runs: computed, kept, and brought up to date."""
