"""The explorer: a local web application to watch prompts being decoded and to branch from any state."""
