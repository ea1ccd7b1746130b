"""Published checkpoints: where they are, what their files say, and how they become models."""

from unmask.models.checkpoints.config import DREAM, FAMILIES, LLADA, Family, find_family, read_config
from unmask.models.checkpoints.hub import find_local_copy, is_cached, resolve_path
from unmask.models.checkpoints.load import (
    MANIFEST,
    Checkpoint,
    CheckpointInfo,
    check_manifest,
    describe_checkpoint,
    fingerprint,
    hash_file,
    load_checkpoint,
)
from unmask.models.checkpoints.text_codec import TextCodec
from unmask.models.checkpoints.weights import load_weights, save_weights
