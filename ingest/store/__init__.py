"""The store: Parquet parts, their catalogue in DuckDB, one writer, many readers."""
