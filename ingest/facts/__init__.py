"""Facts from flags, fairmfu.toml and files next to a log."""
