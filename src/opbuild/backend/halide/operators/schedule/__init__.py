"""How each operator family's loops are arranged, by variant; nothing here changes a result."""
