"""Facts, throughput and peaks of one run to MFU, or what is missing for it."""
