"""Audit of the figures that a log prints, with its framework's own formula."""
