"""Branches from real states: what is tried, the engine that does equal work once, what it cost."""
