"""One log, or several small ones, to all of its tables."""
