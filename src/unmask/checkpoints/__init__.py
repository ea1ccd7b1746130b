"""Published checkpoints: where they are, what their files say, and how they become models."""
