"""Facts of the platform: processors, memory, processes, folders, digests."""
