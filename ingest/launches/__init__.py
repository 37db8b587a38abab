"""The rows of one start of a training process: steps, events, and how it ended."""
