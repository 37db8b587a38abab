"""Identity of runs: sources of one run, launches that continue others, goodput."""
