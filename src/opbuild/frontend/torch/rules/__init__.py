"""The rules for ATen's operators, a module a kind; see ``frontend.torch.builder``."""
