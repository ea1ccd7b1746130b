"""Tasks whose prompts are drawn: one generator per file."""
