"""Formats of each framework as data: one LogFormat a kind of log, in a folder per framework."""
