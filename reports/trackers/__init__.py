"""Runs exported as TensorBoard, MLflow and W&B files."""
