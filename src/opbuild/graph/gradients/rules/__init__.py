"""The rules of gradients, by kind; importing a module registers its rules."""
