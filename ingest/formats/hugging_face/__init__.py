"""Logs of the Hugging Face Trainer and of what is built on it."""
