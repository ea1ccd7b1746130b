"""What every package stands on: errors, files, options, user code, environment. Knows nothing of models or text.

Import from its modules (`unmask.base.errors`, `unmask.base.files`, ...): `import unmask` needs a few of them, and must
load neither torch nor pydantic.
"""
