"""Causes of lost time inside a run: the ranks that the others waited for."""
