"""The figures of a study, as SVG."""
