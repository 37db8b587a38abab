"""Shared parts of the metrics: columns, window arrays, intervals, print precision."""
