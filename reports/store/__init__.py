"""Metrics that a store keeps, brought up to date when they are asked for."""
