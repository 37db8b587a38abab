"""Logs of Megatron and its relatives: Megatron-DeepSpeed, GPT-NeoX, Domino."""
