"""From an answer's text to a utility in [0, 1]."""
