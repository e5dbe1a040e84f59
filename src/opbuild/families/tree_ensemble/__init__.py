"""Kernel family ``tree_ensemble``: sums of the leaves that rows reach in many decision trees."""
