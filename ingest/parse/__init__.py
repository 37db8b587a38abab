"""Parsing of single lines into steps, facts and events: the specification."""
