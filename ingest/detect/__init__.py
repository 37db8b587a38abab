"""Detection of a file's format, and formats described by users in TOML."""
