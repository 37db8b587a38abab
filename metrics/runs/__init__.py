"""Which sources are one run, which launch continues which, goodput."""
