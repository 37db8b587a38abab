"""What a log prints of its own speed, reproduced by its framework's formula."""
