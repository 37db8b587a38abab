"""MFU and HFU of one run from facts, throughput and peaks; or the missing facts."""
