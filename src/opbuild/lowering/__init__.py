"""From a graph to a program of operator descriptors."""
