"""The formula: matmul FLOPs of a model, precisions, dense peaks."""
