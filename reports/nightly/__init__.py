"""Nightly run: changes since the last one, baselines, outputs."""
