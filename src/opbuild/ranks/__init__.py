"""The ranks of one job: how they are started, find each other, communicate, and wait for each other."""
