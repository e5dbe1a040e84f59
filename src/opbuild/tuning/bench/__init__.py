"""A model in several runtimes, measured side by side: each in a process of its own, all in turn."""
