"""Logs of Megatron and its kin: Megatron-DeepSpeed, GPT-NeoX, Domino."""
