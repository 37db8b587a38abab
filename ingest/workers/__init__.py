"""Engines that read logs: local processes, or a Ray cluster."""
