"""Detection of a file's format, and the formats that users describe in TOML."""
