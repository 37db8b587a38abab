"""Versions of every framework's own speed formula, as data."""
