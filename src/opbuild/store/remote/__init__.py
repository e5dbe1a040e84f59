"""The remote store: one machine's entries for all others; nothing of it is believed unchecked or waited for long."""
