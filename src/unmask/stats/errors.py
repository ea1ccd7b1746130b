"""What the statistics say when a number does not exist."""


class NotEnough(ValueError):
    """The quantity does not exist for this data: no usable state, one rollout, nothing to average.

    Its caller may report a missing row. A wrong shape or a bad value is a plain ValueError, which is a bug to show.
    """


class MissingExtra(ImportError):
    """A package is not installed that only an optional extra of this one brings."""
