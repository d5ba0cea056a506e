"""The four pipelines of Gong et al. (arXiv 2304.08925): raw files or shards, on the CPU or on CPU and GPU."""
