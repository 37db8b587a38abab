"""Versions of each framework's own formula for its speed, as data."""
