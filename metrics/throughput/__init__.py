"""Tokens per second per GPU from logged steps: windows, warm-up, evidence, tokens."""
