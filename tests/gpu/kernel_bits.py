"""Bits of every kernel and every fused piece: an old tree beside a new one, on the same machine with the same numbers.

    python -m tests.gpu.kernel_bits OLD NEW [--only statistics gate] [--shapes mini] [--device cpu]

OLD and NEW are folders with `src/unmask`. Each tree runs in processes of its own, one for each shape, and writes a
digest of every result. A table says what differs; the exit status is 1 where anything does, where one tree lacks a
value, or where a tree gave up a kernel for the plain path. `--device cpu` runs a tiny shape under Triton's interpreter.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.gpu.names import get
from tests.gpu.networks import SHAPES, Shape, inputs, noise, random_network, start

ROOT = Path(__file__).resolve().parents[2]
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
SAMPLE = 64
"""Numbers of each result that are kept beside its digest, so that the table can say how far apart two results are."""
GIVEN_UP = ("plain path runs", "not fused", "not as a recorded graph", "without a kernel")
"""Words of the warnings with which the package gives up a kernel or a graph."""
NEVER = float("-inf")


@dataclass(frozen=True)
class Case:
    """The shape, type and device of the numbers, and where they are drawn from."""

    name: str
    dtype: torch.dtype
    device: str
    numbers: torch.Generator

    @property
    def shape(self) -> Shape:
        return SHAPES[self.name]

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"

    @property
    def half(self) -> bool:
        return self.dtype != torch.float32

    def normal(self, *size: int, scale: float = 1.0, dtype: torch.dtype | None = None) -> Tensor:
        made = torch.randn(*size, generator=self.numbers, device=self.device) * scale
        return made.to(dtype or self.dtype)

    def uniform(self, *size: int) -> Tensor:
        return torch.rand(*size, generator=self.numbers, device=self.device, dtype=torch.float64)

    def integers(self, high: int, *size: int) -> Tensor:
        return torch.randint(0, high, size, generator=self.numbers, device=self.device)


Results = Iterator[tuple[str, Any]]


# The kernels between a layer's products.


def norm(case: Case) -> Results:
    width, ops = case.shape.width, get("FusedOps")()
    weight = case.normal(width)
    for rows in (1, 7, 600) if case.on_gpu else (1, 3):
        x, delta = case.normal(2, rows, width, scale=3.0), case.normal(2, rows, width)
        yield f"alone/{rows}", ops.add_norm(x.clone(), None, weight, case.shape.eps)
        yield f"residual/{rows}", ops.add_norm(x.clone(), delta, weight, case.shape.eps)


def rotation(case: Case) -> Results:
    spec, ops, dim = case.shape.spec(1), get("FusedOps")(), case.shape.head_dim
    for rows in (1, 40) if case.on_gpu else (1, 3):
        rotate = get("Rotation").of(case.integers(4096, 2, rows), spec, case.dtype)
        qkv = case.normal(2, rows, sum(spec.qkv), scale=2.0)
        yield f"side by side/{rows}", ops.rotate(*qkv.clone().split(spec.qkv, -1), rotate, dim)
        apart = [part.contiguous() for part in qkv.split(spec.qkv, -1)]
        yield f"apart/{rows}", ops.rotate(*apart, rotate, dim)


def gate(case: Case) -> Results:
    width, ops = case.shape.mlp, get("FusedOps")()
    for rows in (1, 7, 300) if case.on_gpu else (1, 3):
        both = case.normal(2, rows, 2 * width, scale=6.0)
        yield f"{rows}", ops.gate(*both.split(width, -1))
    if case.half and case.on_gpu:
        # Every number of the type: quotients and exponentials that differ in one place only are seen.
        every = torch.arange(-(1 << 15), 1 << 15, device=case.device).to(torch.int16).view(case.dtype)[None]
        for up in (1.0, 0.3, -7.0):
            yield f"every number/{up}", ops.gate(every, torch.full_like(every, up))


# Attention.


def attention_case(case: Case, batch: int, slots: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries, keys and values as a layer hands them over, and a bias that hides the ends of some rows."""
    shape, heads = case.shape, case.shape.heads + 2 * case.shape.kv_heads
    qkv = case.normal(batch, slots, heads, shape.head_dim, scale=1.5).transpose(1, 2)
    q, k, v = qkv.split((shape.heads, shape.kv_heads, shape.kv_heads), 1)
    bias = torch.zeros(batch, 1, 1, slots, dtype=case.dtype, device=case.device)
    for row in range(1, batch):
        bias[row, ..., slots - 5 * row :] = NEVER
    return q, k, v, bias


def attention(case: Case) -> Results:
    for batch, slots in ((1, 32), (3, 96), (2, 256), (1, 640)):
        q, k, v, bias = attention_case(case, batch, slots)
        yield f"{batch}x{slots}/mixed", get("attend")(q, k, v, bias)
        yield f"{batch}x{slots}/with sums", get("attend_lse")(q, k, v, bias)


def readout(case: Case) -> Results:
    for batch, slots in ((1, 32), (3, 96), (2, 224)) if case.on_gpu else ((2, 20),):
        watched = []
        for _ in range(2):
            q, k, v, bias = attention_case(case, batch, slots)
            watched.append(get("Watched")(q, k, get("attend_lse")(q, k, v, bias)[1]))
        wide = bias.expand(-1, -1, slots, -1).contiguous()
        yield f"{batch}x{slots}/plain", get("plain_readout")(watched, bias)
        if all(map(get("fused_readout_takes"), watched)):
            yield f"{batch}x{slots}/kernel", get("fused_readout")(watched, bias)
            yield f"{batch}x{slots}/kernel, bias by query", get("fused_readout")(watched, wide)


# The pass over the vocabulary.


def requests(case: Case, rows: int, plain: bool) -> Iterator[tuple[str, Any]]:
    """Requests that use every branch of the pass."""
    vocab, request, draw = case.shape.vocab, get("StatsRequest"), get("TokenDraw")
    edit = get("Edit")((vocab - 1, 2), (NEVER, -1.5))
    old_RV = case.normal(rows, vocab, scale=3.0)
    logz_R = old_RV.float().logsumexp(-1)
    slot_BN = torch.arange(rows, device=case.device)[:, None]
    previous = get("Posterior")(old_RV, logz_R, slot_BN, edit)
    given_R, old_R = case.integers(vocab, rows) - 1, torch.arange(rows, device=case.device).flip(0) - 1
    everything = request(5, edit, draw(), True, (2, vocab // 2), given_R, previous, old_R)
    yield "greedy", request(edit=edit)
    yield "everything", everything
    for temperature in (0.3, 0.7, 1.3):
        uniform_RD = case.uniform(rows, 2)
        drawn = draw(temperature, uniform_RD=uniform_RD)
        yield f"inverse {temperature}", request(2, edit, drawn, True)
        if plain:
            filtered = draw(temperature, 0.9, 20, uniform_RD=uniform_RD)
            yield f"filters {temperature}", request(2, edit, filtered, True)
    bits_RD, entries = case.integers(1 << 62, rows, 1), get("uniform_entries")
    gumbel = draw(0.7, uniform_vocab=lambda row_C: entries(bits_RD[row_C, 0], vocab)[..., None], bits_RD=bits_RD)
    yield "gumbel", request(2, edit, gumbel)
    yield "everything, drawn", replace(everything, draw=draw(0.7, uniform_RD=case.uniform(rows, 2)))


def statistics(case: Case) -> Results:
    yield from _statistics(case, "statistics", plain=False)


def plain_statistics(case: Case) -> Results:
    yield from _statistics(case, "plain_statistics", plain=True)


def _statistics(case: Case, name: str, plain: bool) -> Results:
    # The most rows make more than one chunk on the plain path.
    for rows in (1, 6, 300) if case.on_gpu else (2,):
        for kind, request in requests(case, rows, plain):
            logits_RV = case.normal(rows, case.shape.vocab, scale=3.0)
            logits_RV[-1, 3:9] = logits_RV[-1].amax()
            yield f"{rows}/{kind}", get(name)(logits_RV, request)


# Regions. They are float64, whatever the network's type.


def region(case: Case) -> Results:
    if case.half:
        return
    for length in (7, 64, 256, 500) if case.on_gpu else (7, 20):
        score_BL, nu_B = case.uniform(8, length), case.uniform(8) * 2
        open_BL = case.uniform(8, length) < 0.8
        budget_B = (open_BL.sum(-1) * case.uniform(8)).long()
        yield f"program/{length}", get("best_region")(score_BL, open_BL, nu_B, budget_B)
        yield f"kernel/{length}", get("best_sets")(*chain(score_BL, open_BL, nu_B), budget_B)


def chain(score_BL: Tensor, open_BL: Tensor, nu_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Open positions from right to left: what each adds, what is paid between two neighbours, and where it stands."""
    position_L = torch.arange(open_BL.shape[1], device=open_BL.device)
    place_BW = torch.where(open_BL, position_L, -1).sort(-1, descending=True).values
    real_BW = place_BW >= 0
    gain_BW = torch.where(real_BW, score_BL.gather(1, place_BW.clamp(min=0)), NEVER)
    toll_BX = gain_BW.new_zeros(len(gain_BW), gain_BW.shape[1] + 1)
    toll_BX[:, 1:-1] = torch.where(real_BW[:, 1:], nu_B[:, None] / (place_BW[:, :-1] - place_BW[:, 1:]), 0.0)
    return gain_BW, toll_BX, place_BW


# Whole passes, block caches, steps and readings.


def engines(case: Case) -> list[str]:
    return ["eager", "graph", "fused"] if case.on_gpu else ["eager"]


PROMPTS = (64, 60, 41, 33, 64, 12, 20, 9)


def forward(case: Case) -> Results:
    """Plain, recorded and replayed passes of each engine."""
    for engine in engines(case):
        network = random_network(case.name, case.dtype, case.device, engine)
        for rows, blanks in ((1, 32), (3, 32), (8, 40)):
            view = inputs(network, PROMPTS[:rows], blanks)
            for needs in (get("Needs")(), get("Needs")(attention=True, hidden=True)):
                for number in range(3):
                    output = network(view, needs)
                    seen = (output.logits_RV, output.hidden_RH, output.attention_BNN)
                    yield f"{engine}/{rows}x{blanks}/{number}/{needs.attention}", seen
    if case.half and case.on_gpu:
        network = random_network(case.name, case.dtype, case.device)
        network = get("use_engine")(network, "fused", invariant=True)
        for rows in (1, 4):
            try:
                yield f"invariant/{rows}", network(inputs(network, PROMPTS[:rows], 32), get("Needs")()).logits_RV
            except get("DenoiserError"):
                # Some shapes cannot have it on some devices. Both trees must refuse alike.
                yield f"invariant/{rows} refused", torch.zeros(1)


def cache(case: Case) -> Results:
    """Passes of both block caches: complete ones, then of spans; from the second round on they are replayed."""
    for engine in engines(case):
        network = random_network(case.name, case.dtype, case.device, engine)
        view = inputs(network, PROMPTS[:4], 32)
        for kind in ("prefix", "dual"):
            for turn in range(3):
                cached = get("BlockCache")(network, kind, 8)
                for number in range(3):
                    output = cached(view, get("Needs")())
                    yield f"{engine}/{kind}/{turn}/{number}", (output.logits_RV, output.wanted_BN)


def steps(case: Case) -> Results:
    """Decodes with whole steps as graphs: the plain loop first, then recorded, then replayed."""
    network = random_network(case.name, case.dtype, case.device, engines(case)[-1])
    for name, settings in (("llada", {"block_length": 8}), ("klass", {"threshold": 0.3}), ("fixed", {})):
        policy = get("make_policy")(name, **settings)
        for turn in range(3):
            state = start(network, PROMPTS[:3], 16, steps=8, seed=turn)
            end = get("decode")(network, policy, state, noise=noise(network, 3, turn))
            sure = [step.confidence_BL for step in end.steps]
            yield f"{name}/{turn}", (end.state.tokens_BL, sure)


def default_diagnostics() -> dict[str, Any]:
    """All diagnostics by name. Trees before 0.8 list classes."""
    return {name: one() if isinstance(one, type) else one for name, one in get("DIAGNOSTICS").items()}


def readings(case: Case) -> Results:
    """Every diagnostic at every step: read at once, recorded and replayed."""
    network = random_network(case.name, case.dtype, case.device, engines(case)[-1])
    diagnostics = default_diagnostics()
    for turn in range(3):
        policy = watched_policy()
        state = start(network, PROMPTS[:3], 12, steps=4, seed=turn)
        get("decode")(network, policy, state, noise=noise(network, 3, turn))
        for number, (traj, action) in enumerate(policy.seen):
            # All in one call: one recording serves them, and so few shapes are remembered that none is forgotten.
            found = get("read_all")(list(diagnostics.values()), traj, action)
            for name, reading in zip(diagnostics, found, strict=True):
                yield f"{name}/{turn}/{number}", reading


def watched_policy() -> Any:
    """The `fixed` policy, which keeps the trajectory and the action of every step."""
    fixed = get("make_policy")("fixed")
    seen: list[Any] = []

    def act(self: Any, traj: Any, look_ahead: Any) -> Any:
        action = type(fixed).act(self, traj, look_ahead)
        seen.append((traj, action))
        return action

    body = {
        "act": act,
        "seen": seen,
        "needs": get("Needs")(divergence=True, attention=True),
        # How many past steps it reads, under the old name and under the new one; and that nobody may record it.
        "memory": 4,
        "past_steps": 4,
        "recordable": False,
        "cuda_graph": False,
    }
    policy = object.__new__(type("Watched", (type(fixed),), body))
    policy.__dict__.update(fixed.__dict__)
    return policy


PIECES: Mapping[str, Callable[[Case], Results]] = {
    "norm": norm,
    "rotation": rotation,
    "gate": gate,
    "attention": attention,
    "readout": readout,
    "statistics": statistics,
    "plain statistics": plain_statistics,
    "region": region,
    "forward": forward,
    "cache": cache,
    "steps": steps,
    "readings": readings,
}


# Digests.


def tensors(value: Any) -> Iterator[Tensor]:
    """All tensors of a value, in the order of its fields: names of fields may change."""
    if isinstance(value, Tensor):
        yield value
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from tensors(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from tensors(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from tensors(inner)


def digest(tensor: Tensor) -> str:
    """Of all bits, computed where they lie. Every NaN counts as the same."""
    flat = tensor.detach().flatten()
    if flat.is_floating_point():
        flat = torch.where(flat.isnan(), torch.full_like(flat, float("nan")), flat)
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    flat = flat.view(kind) if flat.dtype != torch.bool else flat.to(torch.uint8)
    total = 0
    for at in range(0, len(flat), 1 << 24):
        bits = flat[at : at + (1 << 24)].long()
        # Each entry is mixed with its place. Sums of whole numbers wrap around and do not depend on their order.
        mixed = (bits + 0x1234567) * (2 * torch.arange(at, at + len(bits), device=bits.device) + 0x5851F42D4C957F2D)
        mixed = mixed ^ (mixed >> 29)
        total = (total + int((mixed * 0x2545F4914F6CDD1D).sum())) % (1 << 64)
    return f"{total:016x} {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def sample(tensor: Tensor) -> list[float]:
    flat = tensor.detach().flatten()
    stride = max(1, len(flat) // SAMPLE)
    return flat[::stride][:SAMPLE].double().tolist()


def write(shape: str, device: str, names: list[str], path: Path) -> None:
    """Write the digests of one shape; for the tree that this process imports `unmask` from."""
    import unmask

    values: dict[str, tuple[str, list[float]]] = {}
    failures: dict[str, str] = {}
    kinds = DTYPES.items()
    for name in names:
        if device == "cpu":
            # On a CPU the kernels run where they are asked for, and the interpreter is too slow for whole decodes.
            os.environ["UNMASK_STATISTICS"] = "fused" if name == "statistics" else "plain"
        for dtype, kind in kinds:
            case = Case(shape, kind, device, torch.Generator(device).manual_seed(7))
            where = f"{name}|{shape}|{dtype}"
            get("say_once").cache_clear()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    with torch.inference_mode():
                        for key, value in PIECES[name](case):
                            for number, tensor in enumerate(tensors(value)):
                                values[f"{where}|{key}/{number}"] = (digest(tensor), sample(tensor))
                except Exception:
                    failures[where] = traceback.format_exc()
            given_up = [str(w.message) for w in caught if any(words in str(w.message) for words in GIVEN_UP)]
            if given_up:
                failures.setdefault(where, "\n".join(given_up))
        if device != "cpu":
            torch.cuda.empty_cache()
    document = {"package": unmask.__file__, "values": values, "failures": failures}
    path.write_text(json.dumps(document), encoding="utf-8")


# Comparison.


def environment(tree: Path, device: str) -> dict[str, str]:
    """Of a process that imports `unmask` from this tree, and `tests` from here."""
    inherited = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    path = os.pathsep.join([str(tree / "src"), str(ROOT), *inherited])
    # Triton reads its variable when it is loaded.
    interpreted = {"TRITON_INTERPRET": "1"} if device == "cpu" else {}
    return {**os.environ, **interpreted, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def run_tree(tree: Path, shape: str, device: str, names: list[str], path: Path) -> dict[str, Any]:
    """What a tree's process has written; one failure where it wrote nothing."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.gpu.kernel_bits", "--write", str(path)]
    command += ["--shapes", shape, "--device", device, "--only", *names]
    done = subprocess.run(command, env=environment(tree, device), cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode or not path.exists():
        return {"values": {}, "failures": {f"all|{shape}|all": done.stderr[-3000:] or f"exit {done.returncode}"}}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    package = Path(found["package"]).resolve()
    if not package.is_relative_to((tree / "src").resolve()):
        raise SystemExit(f"unmask was imported from {package}, which is outside {tree / 'src'}")
    return found


def largest_difference(old: list[float], new: list[float]) -> str:
    if len(old) != len(new):
        return "other shapes"
    apart = [abs(a - b) for a, b in zip(old, new, strict=True) if a != b and not (math.isnan(a) and math.isnan(b))]
    return f"up to {max(apart):.2g} apart in {len(apart)} of {len(old)}" if apart else "outside of the sample"


def compare(old: dict[str, Any], new: dict[str, Any]) -> int:
    """Print a line for each piece, shape and type, and what differs; the number of differences and failures."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    different = []
    for key in sorted(old["values"].keys() | new["values"].keys()):
        a, b = old["values"].get(key), new["values"].get(key)
        same = a is not None and b is not None and a[0] == b[0]
        count = counts[key.rpartition("|")[0]]
        count[0] += 1
        count[1] += not same
        if not same:
            lacking = "only in the new tree" if a is None else "only in the old tree"
            different.append((key, lacking if a is None or b is None else largest_difference(a[1], b[1])))
    print(f"{'piece':18} {'shape':12} {'type':5} values")
    for where, (count, bad) in sorted(counts.items()):
        name, shape, dtype = where.split("|")
        print(f"{name:18} {shape:12} {dtype:5} {f'{count} equal' if not bad else f'{bad} of {count} DIFFERENT'}")
    for key, words in different[:40]:
        print(f"different  {key}: {words}")
    if len(different) > 40:
        print(f"and {len(different) - 40} more")
    failed = 0
    for side, found in (("old", old), ("new", new)):
        for where, words in found["failures"].items():
            failed += 1
            print(f"FAILED in the {side} tree  {where}: {words.strip()[-1500:]}")
    total = sum(count for count, _ in counts.values())
    print(f"{total} values, {len(different)} different, {failed} failures")
    return len(different) + failed + (not total)


def check(old: Path, new: Path, device: str, shapes: list[str], names: list[str], jobs: int) -> int:
    """Run both trees and compare them."""
    with tempfile.TemporaryDirectory(prefix="kernel-bits-") as folder, ThreadPoolExecutor(jobs) as pool:
        running = [
            (side, pool.submit(run_tree, tree, shape, device, names, Path(folder) / f"{side}-{shape}.json"))
            for shape in shapes
            for side, tree in (("old", old), ("new", new))
        ]
        sides: dict[str, dict[str, Any]] = {side: {"values": {}, "failures": {}} for side in ("old", "new")}
        for side, future in running:
            found = future.result()
            for part in ("values", "failures"):
                sides[side][part] |= found[part]
    return compare(sides["old"], sides["new"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", nargs="*", type=Path, metavar="OLD NEW")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES))
    parser.add_argument("--only", nargs="+", choices=list(PIECES), default=list(PIECES))
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--write", type=Path, help="run the tree that is imported, and write its digests here")
    given = parser.parse_args()
    usual = ["tiny"] if given.device == "cpu" else [name for name in SHAPES if name != "tiny"]
    shapes = given.shapes or usual
    if given.write:
        write(shapes[0], given.device, given.only, given.write)
        return 0
    if len(given.trees) != 2:
        parser.error("name two folders: the old tree and the new one")
    for tree in given.trees:
        if not (tree / "src" / "unmask").is_dir():
            parser.error(f"{tree} has no src/unmask")
    old, new = (tree.resolve() for tree in given.trees)
    return int(bool(check(old, new, given.device, shapes, given.only, given.jobs)))


if __name__ == "__main__":
    sys.exit(main())
