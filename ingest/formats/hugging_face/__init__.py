"""Logs of the Hugging Face Trainer and of tools built on it."""
