"""Studies: their files, and prompts decoded from beginning to end."""

from unmask.lab.study.config import FRESH, ROLES, ModelSpec, PromptRange, StudyConfig
from unmask.lab.study.decode import decode_prompts, group_by_width
