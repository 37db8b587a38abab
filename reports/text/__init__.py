"""What the terminal says: sentences, tables, one run in words."""
