"""What passes between the stages: operator descriptors, keys, entries, levels and programs."""
