"""Logs of Torchtitan: console, TensorBoard files, spans."""
