"""A build and a run to look at: one HTML page, and traces for Chrome and Perfetto."""
