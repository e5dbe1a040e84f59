"""What passes between the stages: operator descriptors, keys, artifacts and entries."""
