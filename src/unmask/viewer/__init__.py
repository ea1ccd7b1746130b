"""The explorer: a local web application for people. `serve` starts it, `docs/view.md` describes it."""
