"""Windows of logged steps to tokens per second and GPU: warm-up, evidence, token counts."""
