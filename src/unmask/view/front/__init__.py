"""The page's own files: HTML, plain JavaScript without a build step, and style."""
