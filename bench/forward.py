"""Forward passes of LLaDA and Dream networks: how the ways of running the layers compare, in one run.

    python bench/forward.py                     scaled-down networks on whatever device there is
    python bench/forward.py --full              published sizes with random weights; needs a GPU of 40 GB or more

A checkpoint in the published format is written and read back, then timed. `authors` is the arithmetic of the
published loops: no fused matrices, no graphs, logits of every position. All other rows give logits of the 32
positions per sequence that a decoder wants. Times are medians.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from unmask.checkpoints import weights
from unmask.checkpoints.config import CheckpointConfig
from unmask.checkpoints.device import resolve_device, resolve_dtype
from unmask.checkpoints.read import FAMILIES, Checkpoint, read, use_engine
from unmask.core import Needs, Noise, State, View, row_key
from unmask.decode import decode
from unmask.denoisers import ApproximateCache
from unmask.denoisers.transformer import Transformer
from unmask.policies import make

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.helpers import scaled

WANTED = 32
FULL = {
    "llada": {"d_model": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 32, "mlp_hidden_size": 12288},
    "dream": {
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "intermediate_size": 18944,
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="published sizes")
    parser.add_argument("--family", choices=sorted(FULL), action="append")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--length", type=int, nargs="+", default=[256])
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    device = resolve_device("auto")
    for name in args.family or sorted(FULL):
        with tempfile.TemporaryDirectory() as folder:
            written = write_checkpoint(name, Path(folder), args.full, device)
            began = time.perf_counter()
            found = read(written, device=device, dtype=resolve_dtype("auto", device), engine="eager")
            synchronise(device)
            spent = time.perf_counter() - began
        spec = found.network.model.spec
        size = f"{spec.parameters / 1e6:,.1f} M parameters, {found.network.model.dtype}"
        print(f"\n{name}: {size}, read in {spent:.1f} s")
        time_passes(found, args)
        time_decoding(found, min(args.length), device)


def write_checkpoint(name: str, folder: Path, full: bool, device: torch.device) -> Path:
    """The test suite's scaled-down checkpoint; at full size a wide network with weights drawn on the device."""
    made: Path = getattr(scaled, name)(folder, real_ids=full)
    if not full:
        return made
    for old in made.glob("*.safetensors*"):
        old.unlink()
    path = made / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | FULL[name]))
    config = CheckpointConfig.read(made)
    family = FAMILIES[config.model_type]
    model = Transformer.empty(family.spec(config), device, torch.bfloat16)
    torch.manual_seed(0)
    for parameter, values in model.named_parameters():
        torch.nn.init.normal_(values, std=0.02) if "norm" not in parameter else torch.nn.init.ones_(values)
    weights.save(model, family.names, made, shards=6)
    return made


def time_passes(found: Checkpoint, args: argparse.Namespace) -> None:
    network, device = found.network, found.network.device
    views = {(b, n): a_view(found, b, n) for b in args.batch for n in args.length}
    network.model.fuse(False)
    authors = {
        shape: median(lambda v=view: authors_pass(found, v), args.repeats, device) for shape, view in views.items()
    }
    network.model.fuse(True)
    plain = {shape: network(view, Needs()).logits_RV for shape, view in views.items()}
    # Compiling changes the network for good, so it comes last.
    engines = ["eager", *(["graph", "compile"] if device.type == "cuda" else [])]
    for shape in views:
        print(f"  authors  B {shape[0]:3d} L {shape[1]:5d} {authors[shape]:8.2f} ms")
    for engine in engines:
        run = use_engine(network, engine)
        for shape, view in views.items():
            ms = median(lambda r=run, v=view: r(v, Needs()), args.repeats, device)
            read_out = median(lambda r=run, v=view: r(v, Needs(attention=True)), args.repeats, device)
            logits = run(view, Needs()).logits_RV
            off = float((logits.float() - plain[shape].float()).abs().max())
            flips = float((logits.argmax(-1) != plain[shape].argmax(-1)).float().mean())
            spread = float(plain[shape].float().std())
            print(
                f"  {engine:8s} B {shape[0]:3d} L {shape[1]:5d} {ms:8.2f} ms ({authors[shape] / ms:4.2f}x)   with "
                f"read-out {read_out:8.2f} ms   off by {off:.3g} (deviation {spread:.2f}), {flips:.1%} flips",
                flush=True,
            )


@torch.inference_mode()
def authors_pass(found: Checkpoint, view: View) -> torch.Tensor:
    model = found.network.model
    return model.head_of(model.norm(model(view.tokens_BN, view.position_BN).x_BNH))


def a_view(found: Checkpoint, batch: int, length: int) -> View:
    return View.of(a_state(found, batch, length, WANTED), Needs())


def a_state(found: Checkpoint, batch: int, length: int, new: int) -> State:
    draw = torch.Generator().manual_seed(batch * length)
    prompts = torch.randint(0, 200, (batch, length - new), generator=draw).tolist()
    mask_id = found.network.vocabulary.mask_id
    return State.from_prompts(prompts, new_tokens=new, steps=new, mask_id=mask_id, device=found.network.device)


def time_decoding(found: Checkpoint, length: int, device: torch.device) -> None:
    """Whole decodes of one row: 32 tokens in 32 steps, exact and with the approximate caches."""
    policy = make("llada", block_length=WANTED // 2)  # on a GPU the layers are compiled by now
    start = a_state(found, 1, length, WANTED)
    noise = Noise.of([row_key(0, "bench")], device)
    plain = found.network
    ways = {
        "eager": plain,
        **({"graph": use_engine(plain, "graph")} if device.type == "cuda" else {}),
        "approximate prefix cache": ApproximateCache(plain, "prefix", WANTED // 2),
        "approximate dual cache": ApproximateCache(plain, "dual", WANTED // 2),
    }
    exact = None
    for name, denoiser in ways.items():
        decode(denoiser, policy, start, noise=noise, record=False)
        synchronise(device)
        began = time.perf_counter()
        end = decode(denoiser, policy, start, noise=noise, record=False)
        synchronise(device)
        spent = time.perf_counter() - began
        exact = end.state.tokens_BL if exact is None else exact
        same = float((end.state.tokens_BL == exact)[start.masked_BL].float().mean())
        print(
            f"  decode {WANTED} tokens at L {length}: {name:25s} {WANTED / spent:7.1f} tokens/s, "
            f"{same:.0%} of the tokens of eager",
            flush=True,
        )


def median(call: Callable[[], object], repeats: int, device: torch.device) -> float:
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        synchronise(device)
        began = time.perf_counter()
        call()
        synchronise(device)
        times.append(time.perf_counter() - began)
    return 1000 * statistics.median(times)


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
