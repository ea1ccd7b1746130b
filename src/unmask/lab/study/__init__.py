"""Studies: their files, and prompts decoded from beginning to end."""

from unmask.lab.study.config import ROLES, PromptRange, Study
from unmask.lab.study.decode import decode_prompts, group_by_width

__all__ = ["ROLES", "PromptRange", "Study", "decode_prompts", "group_by_width"]
