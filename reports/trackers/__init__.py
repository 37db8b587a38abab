"""Runs written as TensorBoard, MLflow and W&B files."""
