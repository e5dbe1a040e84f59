"""What passes between the stages: operator descriptors, keys, entries, targets and programs."""
