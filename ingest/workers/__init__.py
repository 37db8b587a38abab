"""Logs read by several processes, or by a Ray cluster."""
