"""What each operator family computes; nothing here says how."""
