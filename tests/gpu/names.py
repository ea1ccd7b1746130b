"""Where inner parts of the package stand, in trees of several versions.

`kernel_bits` runs an old tree beside a new one, and modules are renamed between the two. Each part has the modules it
has ever stood in and the names it has ever had, the newest first; `get` takes the first pair that exists. Add the new
module and the new name at the front of both lists when a part is moved, and delete what the oldest tree in use no
longer has.
"""

from contextlib import suppress
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import Any

_KERNELS = "models.triton_kernels models.kernels.layers denoisers.kernels.layers"
_READOUT_KERNEL = "models.triton_kernels models.kernels.readout denoisers.kernels.readout"
_TRANSFORMER = "models.transformer denoisers.transformer"
_STATISTICS = "core.vocab_statistics core.statistics"
_INVARIANCE = "models.invariance denoisers.invariance"
_CACHE = "models.block_cache denoisers.cached"

NAMES: dict[str, tuple[str, str]] = {
    # Kernels, and the plain operations that they must agree with.
    "FusedOps": (_KERNELS, "FusedOps"),
    "PLAIN": (_TRANSFORMER, "PLAIN"),
    "Rotation": (_TRANSFORMER, "Rotation"),
    "attend": (_TRANSFORMER, "attend"),
    "attend_lse": (_TRANSFORMER, "attend_lse"),
    "Watched": (_TRANSFORMER, "AttentionInputs Watched"),
    "fused_readout": (_READOUT_KERNEL, "fused_mean_attention mean_attention"),
    "fused_readout_takes": (_READOUT_KERNEL, "supports_readout takes"),
    "plain_readout": ("models.attention_readout models.readout denoisers.readout", "mean_attention"),
    "statistics": (
        "core.vocab_statistics core.vocab_statistics_choice core.fused",
        "compute_vocab_stats fast_vocab_stats statistics",
    ),
    "plain_statistics": (_STATISTICS, "compute_vocab_stats_in_torch vocab_stats one_pass"),
    "StatsRequest": (_STATISTICS, "StatsRequest PassOptions"),
    "TokenDraw": (_STATISTICS, "TokenDraw Sampling"),
    "uniform_entries": ("core.noise core.rng", "uniform_per_token entries"),
    "best_region": ("adapt.diagnostics.region diagnostics.region", "best_region"),
    "best_sets": (
        "adapt.diagnostics.region_triton adapt.diagnostics.region_triton diagnostics.region_triton",
        "best_sets",
    ),
    # Networks.
    "TransformerSpec": (_TRANSFORMER, "TransformerSpec Spec"),
    "Transformer": (_TRANSFORMER, "Transformer"),
    "Network": ("models.network denoisers.network", "Network"),
    "use_engine": ("models.execution models.engines denoisers.engines", "use_engine"),
    "PassGraphs": ("models.execution models.graphs denoisers.graphs", "PassGraphs Graphs"),
    "StepGraphs": ("models.cuda_graphs models.recorder denoisers.recorder", "GraphCache CudaRecorder"),
    "run_layers": ("models.network models.readout denoisers.readout", "run_layers run"),
    "BlockCache": (_CACHE, "BlockCache ApproximateCache"),
    "Bounds": (_INVARIANCE, "Bounds"),
    # Values and the loop.
    "Edit": ("core.prediction", "Edit"),
    "Posterior": ("core.prediction", "Posterior"),
    "PackedSlots": ("core.prediction core.model_io", "Slots.pack PackedSlots"),
    "ModelInput": ("core", "ModelInput View"),
    "Needs": ("core", "Needs"),
    "Noise": ("core", "Noise"),
    "State": ("core", "State"),
    "Vocabulary": ("core", "Vocabulary"),
    "decode": ("engine.decode decode", "decode"),
    "PendingFlags": ("engine.graphed_decode recorded", "PendingFlags _Looks"),
    "make_policy": ("methods policies", "make_policy make"),
    "DIAGNOSTICS": ("adapt.diagnostics diagnostics", "DIAGNOSTICS"),
    "read_all": ("adapt.diagnostics.graphs diagnostics.replay", "read_all"),
    "build_reading_graph": ("adapt.diagnostics.graphs diagnostics.replay", "build_reading_graph _record"),
    "READING_GRAPHS": ("adapt.diagnostics.graphs diagnostics.replay", "READING_GRAPHS _RECORDED"),
    "DenoiserError": ("base.errors errors", "DenoiserError"),
    "say_once": ("base.errors core.remarks", "warn_once say_once"),
}


@cache
def get(name: str) -> Any:
    """The object of that name in the tree that this process imports `unmask` from."""
    modules, attributes = NAMES[name]
    for module in modules.split():
        try:
            found = import_module(f"unmask.{module}")
        except ModuleNotFoundError as error:
            # A missing dependency, such as Triton, is not a missing module of ours.
            if not str(error.name).startswith("unmask"):
                raise
            continue
        for attribute in attributes.split():
            with suppress(AttributeError):
                return attrgetter(attribute)(found)
    raise LookupError(
        f"{name} is in none of {modules} under the names {attributes}: add its place to tests/gpu/names.py"
    )
