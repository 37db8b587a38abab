"""The ingest run, from paths to a store, and its Python API."""
