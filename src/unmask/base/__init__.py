"""Errors, files, options, user code and environment: the base of all other packages.

Import from its modules (`unmask.base.errors`, `unmask.base.files`, ...), not from here: `import unmask` needs some of
them, and must not load torch or pydantic.
"""
