"""The schema of all tables, errors, numbers, arrays, paths: what every other room builds on."""
