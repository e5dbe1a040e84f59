"""Files that others may share: whom to believe, how to write and to map them."""
