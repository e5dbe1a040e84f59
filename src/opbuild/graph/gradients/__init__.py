"""Reverse-mode differentiation of graphs: the backward operators, a rule for each operator, and the walk back."""
