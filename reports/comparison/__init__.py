"""Comparisons of runs: who is faster, what a change buys, and the gate of a build."""
