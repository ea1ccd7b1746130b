"""Attacks that are programs: what the tests, the tables of the documentation and the long runs share."""
