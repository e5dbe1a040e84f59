"""What is built ahead of its use: offline models, each one file, and all that models need, stored."""
