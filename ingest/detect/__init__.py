"""Which formats there are, a user's own among them, and which of them a file has."""
