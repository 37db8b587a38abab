"""Identity of runs: sources of one launch, launches that continue others, goodput."""
