"""Rows of one start of a training process: steps, events, and the outcome."""
