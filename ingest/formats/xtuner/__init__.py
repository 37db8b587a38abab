"""Logs of XTuner: mmengine's, their scalars, and version 1."""
