"""Texts of the terminal: sentences, tables, one run in words."""
