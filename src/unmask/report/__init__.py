"""Tables, figures and pages from stored results; nothing here runs a model."""
