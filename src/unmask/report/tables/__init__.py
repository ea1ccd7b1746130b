"""The tables of a study."""
