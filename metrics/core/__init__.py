"""The columns of a run's metrics, its windows as arrays, intervals, printed precision."""
