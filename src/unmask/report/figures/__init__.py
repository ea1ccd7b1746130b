"""The figures of a study as values, and who draws them: a page, or a paper."""
