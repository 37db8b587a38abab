"""Bytes of a file to clean, numbered lines of text; event files to values."""
