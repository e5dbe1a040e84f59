"""One lowering rule an operator family."""
