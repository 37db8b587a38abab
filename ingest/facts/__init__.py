"""Facts from flags, fairmfu.toml and files beside a log."""
