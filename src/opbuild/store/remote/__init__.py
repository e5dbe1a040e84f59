"""The remote store: what one machine built, for all others; nothing of it is believed unchecked or waited for long."""
