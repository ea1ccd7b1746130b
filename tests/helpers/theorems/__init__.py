"""The quantities of the four axis theorems, as oracles: what each diagnostic is a proxy for."""
