"""What a study's tables say; never runs a model, and nothing that runs one imports it."""
