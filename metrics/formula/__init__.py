"""The formula: matmul FLOPs of a model, number formats, dense peaks."""
