"""Logs, small ones in groups, read into rows of all tables."""
