"""Ingest from paths to a store, and its Python API."""
