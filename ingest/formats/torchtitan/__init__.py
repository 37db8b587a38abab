"""Logs of Torchtitan: its console, its TensorBoard files, its spans."""
