"""Diagnosis of one run: phases of a step, and ranks that the others waited for."""
