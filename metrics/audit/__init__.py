"""Audit of the figures that a log prints, by its framework's own formula."""
