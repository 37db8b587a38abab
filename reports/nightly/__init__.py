"""The nightly run: what changed since the last one, baselines, its outputs."""
