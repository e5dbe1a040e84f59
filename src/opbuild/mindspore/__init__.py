"""The face for MindSpore users."""
