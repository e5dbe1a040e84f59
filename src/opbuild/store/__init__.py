"""Where built operators are kept."""
