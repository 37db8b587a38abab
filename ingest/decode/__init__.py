"""From the bytes of a file to clean, numbered lines of text.

From event files to values.
"""
