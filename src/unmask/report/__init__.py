"""What people see: tables, figures and words about results; nothing here runs a model.

A study's findings become one `Report` (`study`, from `tables/`, `figures/` and `words/`), which `html`, `markdown`,
`csv`, `latex`, `plain` (JSON) and `screen` write; these know only `report` and `sheet`. A new table is a function in
`tables/` that returns a `Sheet`, and a place in `sections`; a new figure is one in `figures/` that returns a chart as a
value, which the page and a paper draw alike.
"""
