"""Diagnosis of one run: where the time of a step goes."""
