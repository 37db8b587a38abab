"""Formats as data: one LogFormat per kind of log, in a folder per framework."""
