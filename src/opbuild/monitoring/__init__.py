"""The process seen from outside: its log, its metrics and its spans, made of events; nothing is loaded unasked."""
