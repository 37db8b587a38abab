"""Identity of runs: sources of a launch, launches that continue others, goodput."""
