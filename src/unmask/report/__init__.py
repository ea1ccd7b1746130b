"""Tables, figures and pages of studies, comparisons, the demo and single runs; nothing here runs a model.

`study_report` makes a `Report` of a study's findings, and `write_report` its files. `pages` frames every page.
"""
