"""Metrics kept in a store, updated on request."""
