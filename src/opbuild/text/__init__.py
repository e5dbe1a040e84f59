"""Words for people, and JSON that equal values share."""
