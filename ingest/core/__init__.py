"""Schema of all tables, errors, numbers, arrays, paths: the base of all rooms."""
