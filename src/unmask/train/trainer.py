"""Train a model: the network, a training step, validation, and `train`, which runs them from start to export.

A killed run goes on from its last checkpoint when it is started again, and ends in the same bits on a CPU.
"""

import csv
import io
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from unmask.base.errors import UnmaskError
from unmask.base.files import write_text
from unmask.models import Transformer, TransformerSpec, build_graph, compile_layers
from unmask.models.execution import resolve_device
from unmask.train import muon, run_folder
from unmask.train.batches import Batch, RowGroup, draw_batch, group_rows_by_length, make_validation_batches
from unmask.train.config import OptimizerConfig, TrainConfig
from unmask.train.data import Rows, TrainingData, data_key, load_data
from unmask.train.export import export_model, read_export
from unmask.train.loss import token_losses
from unmask.train.sources import Folders

CURVE, SCORES, MODEL, SNAPSHOT = "curve.csv", "scores.csv", "model", "snapshot"
SHIFT = {"llada": 0, "dream": 1}
"""Slots before a position at which each family reads the position's logits."""
REHEARSALS = 3
"""Number of steps before one is recorded: compilation, autotuning and optimizer state cannot be recorded."""

Score = Callable[[Path, int], Mapping[str, float]]
"""Function (folder of a model, prompts per task) -> mean utility by task, on development prompts."""


class TrainingFailed(UnmaskError):
    """Error for a training run whose loss is not a finite number."""


# The network and its optimizers


def make_network_spec(config: TrainConfig) -> TransformerSpec:
    """Return the sizes and conventions of the network that a configuration describes."""
    model = config.model
    return TransformerSpec(
        vocab=config.tokenizer.size,
        width=model.width,
        layers=model.layers,
        heads=model.heads,
        kv_heads=model.kv_heads,
        mlp=model.mlp,
        theta=model.theta,
        eps=model.norm_eps,
        qkv_bias=model.family == "dream",
        rope_float32=model.family == "llada",
    )


def init_network(config: TrainConfig) -> Transformer:
    """Create a network with random weights: norms one, biases zero, matrices normal.

    Matrices that write to the residual stream are smaller by 1/sqrt(2 layers), so that its size does not grow with
    depth. Numbers are drawn on the CPU, in the order of the parameters, so that every device starts from the same ones.
    """
    model = Transformer(make_network_spec(config))
    # A generator of its own: what else draws numbers in this process must not change the first weights.
    generator = torch.Generator().manual_seed(config.seed)
    std = config.model.init_std
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
                continue
            writes = name.endswith(("out.weight", "down.weight"))
            scale = std / math.sqrt(2 * config.model.layers) if writes else std
            nn.init.normal_(parameter, std=scale, generator=generator)
    return model


def learning_rate(settings: OptimizerConfig, step: int) -> float:
    """Return the learning rate of a step: linear growth over the warm-up, then a cosine down to the final rate."""
    if step < settings.warmup:
        return settings.rate * (step + 1) / settings.warmup
    done = (step - settings.warmup) / max(1, settings.steps - settings.warmup)
    return settings.final_rate + (settings.rate - settings.final_rate) * (1 + math.cos(math.pi * done)) / 2


def make_optimizers(model: Transformer, settings: OptimizerConfig, rate: Tensor | None) -> list[torch.optim.Optimizer]:
    """Create the optimizers of a run: AdamW alone, or Muon for the layers' matrices and AdamW for the rest.

    On a GPU `rate` is a tensor that a recorded step reads again in every replay. On a CPU it is None.
    """
    matrices = muon.layer_matrices(model) if settings.kind == "muon" else {}
    # Embedding and head stay with AdamW, as Muon's authors advise.
    rest = [p for p in model.parameters() if p not in matrices]
    groups = [
        {"params": [p for p in rest if p.dim() > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in rest if p.dim() == 1], "weight_decay": 0.0},
    ]
    on_gpu = rate is not None
    lr = settings.rate if rate is None else rate
    adamw = torch.optim.AdamW(groups, lr=lr, betas=settings.betas, eps=settings.eps, fused=on_gpu, capturable=on_gpu)
    if not matrices:
        return [adamw]
    return [muon.Muon(matrices, list(matrices.values()), lr=lr, weight_decay=settings.weight_decay), adamw]


# What a step reads: rows that stay on the device, and a batch that is drawn for it on the host


@dataclass(frozen=True)
class DeviceRows:
    """All rows of a group on the device. The host only says which of them a step reads."""

    group: RowGroup
    tokens_EN: Tensor
    length_E: Tensor

    @classmethod
    def of(cls, group: RowGroup, rows: Rows, filler: int, device: torch.device) -> "DeviceRows":
        """Copy the rows of a group to the device, padded to its length."""
        # The whole data set fits on the device; copying rows for every step would make the GPU wait for the host.
        tokens = torch.from_numpy(rows.pad(group.chosen_E, group.length, filler))
        return cls(group, tokens.to(device), torch.from_numpy(rows.length_E[group.chosen_E]).to(device))


class BatchTensors(NamedTuple):
    """A batch as tensors on the device."""

    rows_B: Tensor
    hidden_BN: Tensor
    place_R: Tensor
    weight_R: Tensor

    @classmethod
    def of(cls, batch: Batch, device: torch.device) -> "BatchTensors":
        """Copy a batch to new memory on the device."""
        return cls(*(torch.from_numpy(getattr(batch, name)).to(device) for name in cls._fields))

    def copy_from(self, batch: Batch) -> None:
        """Copy a batch of the same shape into these tensors, without waiting for the device."""
        for name, tensor in self._asdict().items():
            host = torch.from_numpy(getattr(batch, name))
            # Pinned memory lets the host go on. Its allocator hands the block out again only after the copy.
            tensor.copy_(host.pin_memory() if tensor.is_cuda else host, non_blocking=True)


@contextmanager
def restore_afterwards(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> Iterator[None]:
    """Restore weights and optimizer state after the block, in the same memory, because CUDA graphs hold addresses.

    State that an optimizer creates inside the block is set to zero, its value at the start.
    """

    def state_tensors(optimizer: torch.optim.Optimizer) -> dict[tuple[int, str], Tensor]:
        return {(id(p), name): value for p, state in optimizer.state.items() for name, value in state.items()}

    # Rehearsals train for real, because only a real step compiles, tunes and creates the state that a recording needs.
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    before = [{key: value.clone() for key, value in state_tensors(optimizer).items()} for optimizer in optimizers]
    yield
    with torch.no_grad():
        for parameter, weight in zip(model.parameters(), weights, strict=True):
            parameter.copy_(weight)
        for optimizer, state in zip(optimizers, before, strict=True):
            for key, value in state_tensors(optimizer).items():
                if key in state:
                    value.copy_(state[key])
                else:
                    value.zero_()


# Steps and validation


class StepResult(NamedTuple):
    """Loss and gradient norm of one step, still on the device. The next replay of a recorded step overwrites them."""

    loss: Tensor
    gradient: Tensor
    """Norm of the gradient before clipping."""


class Trainer:
    """A network in training, with its optimizers and its rows on the device."""

    def __init__(self, config: TrainConfig, data: TrainingData, device: torch.device):
        self.config, self.data, self.device = config, data, device
        cuda = device.type == "cuda"
        self.model = init_network(config).to(device)
        # Before anything is recorded: a graph holds the kernels that ran, compiled or not.
        if config.run.compile and cuda:
            compile_layers(self.model)
        weights = [source.weight for source in config.sources.values()]
        groups = group_rows_by_length(data.training, config.data.lengths, weights, config.optimizer.batch)
        self.rows = [DeviceRows.of(group, data.training, data.ids.eos, device) for group in groups]
        # Inputs of a step. They never move, because a recorded step knows their addresses.
        self.batches = [BatchTensors.of(self.draw_group(rows.group, 0), device) for rows in self.rows]
        self.rate = torch.zeros((), device=device) if cuda else None
        self.optimizers = make_optimizers(self.model, config.optimizer, self.rate)
        self.records_step = config.run.graph and cuda
        self._run_update: Callable[[], StepResult] = self.update_weights
        self._drawn: tuple[int, list[Batch]] | None = None

        # Held-out batches have the training batches' shapes, so that compiled code fits. With every batch come the
        # sources of its places, whose losses are weighted to sum to the mean of each source.
        held_out = data.held_out
        count_T = np.bincount(held_out.source_E, minlength=len(weights))
        shapes = {group.length: group.rows for group in groups}
        self.held_out: list[tuple[DeviceRows, list[tuple[BatchTensors, Tensor]]]] = []
        for group in group_rows_by_length(held_out, config.data.lengths, [1.0] * len(weights), 1):
            group = replace(group, rows=shapes.get(group.length, 32))
            source_E = held_out.source_E[group.chosen_E]
            batches = []
            for batch in make_validation_batches(
                group, config.seed, config.optimizer.least_ratio, 1.0 / count_T[source_E]
            ):
                source_R = source_E[batch.rows_B[batch.place_R // group.length]]
                batches.append((BatchTensors.of(batch, device), torch.from_numpy(source_R).to(device)))
            self.held_out.append((DeviceRows.of(group, held_out, data.ids.eos, device), batches))

    @property
    def tokens_per_step(self) -> int:
        """Number of tokens that go through the network in a step, padding included."""
        return sum(rows.group.rows * rows.group.length for rows in self.rows)

    def step(self, step: int) -> StepResult:
        """Draw the batch of a step, counted from 0, and update the weights once."""
        settings = self.config.optimizer
        if self._drawn is None or self._drawn[0] != step:
            self._drawn = step, [self.draw_group(rows.group, step) for rows in self.rows]
        for tensors, batch in zip(self.batches, self._drawn[1], strict=True):
            tensors.copy_from(batch)
        if self.rate is not None:
            self.rate.fill_(learning_rate(settings, step))
        else:
            for group in (group for optimizer in self.optimizers for group in optimizer.param_groups):
                group["lr"] = learning_rate(settings, step)
        if self.records_step:
            # Recorded in the first step and not before, because a resumed run has its state only then.
            with restore_afterwards(self.model, self.optimizers):
                self._run_update = build_graph(self.update_weights, self.device, rehearsals=REHEARSALS)
            self.records_step = False
        result = self._run_update()
        # The device is busy with this step now: the host draws the next one meanwhile.
        if step + 1 < settings.steps:
            self._drawn = step + 1, [self.draw_group(rows.group, step + 1) for rows in self.rows]
        return result

    def draw_group(self, group: RowGroup, step: int) -> Batch:
        """Draw the rows and masks of a group for a step; they depend on seed and step alone."""
        return draw_batch(group, self.config.seed, step, self.config.optimizer.least_ratio)

    def update_weights(self) -> StepResult:
        """Update the weights with the batches on the device, without waiting for it, so that a graph can record it."""
        loss = torch.zeros((), device=self.device)
        for rows, batch in zip(self.rows, self.batches, strict=True):
            group_loss = (self._batch_losses(rows, batch) * batch.weight_R).sum()
            group_loss.backward()
            # Detached: the sum is for the log and needs no gradient.
            loss += group_loss.detach()
        # Gradients of all lengths together are one step's: clipped once, as if the rows had been one batch.
        gradient = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.optimizer.clip)
        for optimizer in self.optimizers:
            optimizer.step()
        # None and not zero: the first backward pass then writes gradients in place of adding to them.
        self.model.zero_grad(set_to_none=True)
        return StepResult(loss, gradient)

    def validate(self) -> dict[str, float]:
        """Compute the mean loss of each source's held-out rows, on masks that never change."""
        names = list(self.config.sources)
        # In float64, because thousands of small weighted losses are added.
        total_T = torch.zeros(len(names), dtype=torch.float64, device=self.device)
        for rows, batches in self.held_out:
            for batch, source_R in batches:
                # Not under no_grad, for which compiled code would be compiled once more.
                losses_R = self._batch_losses(rows, batch).detach()
                total_T.index_add_(0, source_R, (losses_R * batch.weight_R).double())
        return dict(zip(names, total_T.tolist(), strict=True))

    def _batch_losses(self, rows: DeviceRows, batch: BatchTensors) -> Tensor:
        """Compute the loss at each masked place of a batch, in the precision of the run."""
        # Chosen with index_select, because a choice by a mask has a shape that only the device knows.
        column_N = torch.arange(rows.group.length, device=self.device)
        valid_BN = column_N < rows.length_E.index_select(0, batch.rows_B)[:, None]
        tokens_BN = rows.tokens_EN.index_select(0, batch.rows_B).long()
        shift, is_bf16 = SHIFT[self.config.model.family], self.config.run.dtype == "bf16"
        # Without the cache of cast weights: a recorded step would go on reading the first ones.
        with torch.autocast(self.device.type, torch.bfloat16, enabled=is_bf16, cache_enabled=False):
            return token_losses(
                self.model, tokens_BN, valid_BN, batch.hidden_BN, batch.place_R, self.data.ids.mask, shift
            )

    def state_dict(self) -> dict[str, Any]:
        """Return weights and optimizer state, without settings, which the configuration has."""
        states = [optimizer.state_dict()["state"] for optimizer in self.optimizers]
        return {"model": self.model.state_dict(), "optimizers": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore weights and optimizer state that `state_dict` returned, before the first step."""
        self.model.load_state_dict(state["model"])
        for optimizer, stored in zip(self.optimizers, state["optimizers"], strict=True):
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": stored, "param_groups": groups})
            if self.rate is not None:
                # Loading copies tensors, the rate too, and a recorded step would read the copy for ever.
                for group in optimizer.param_groups:
                    group["lr"] = self.rate


# The run


@dataclass(frozen=True)
class CurvePoint:
    """One line of `curve.csv`: loss, learning rate and time at a step."""

    step: int
    loss: float
    """Mean loss since the line before."""
    validation: float | None
    rate: float
    gradient: float
    """Norm of the last step's gradient before clipping."""
    tokens: int
    """Number of tokens processed so far, padding included."""
    seconds: float
    """Time spent in training so far, over all attempts."""


@dataclass(frozen=True)
class TrainingProgress:
    """Progress of a run, passed to `on_step` after every step, with losses and scores if they were measured."""

    step: int
    steps: int
    point: CurvePoint | None = None
    tokens_per_second: float = 0.0
    """Speed since the line of the curve before."""
    remaining: float = 0.0
    """Seconds to the end at this speed."""
    scores: Mapping[str, float] | None = None


@dataclass
class RunState:
    """Step number, curve and scores of a run, which a checkpoint stores beside weights and optimizer state."""

    loss_sum: Tensor
    """Sum of losses since the last line of the curve, kept on the device."""
    loss_count: int = 0
    step: int = 0
    """Number of steps done."""
    seconds: float = 0.0
    curve: list[CurvePoint] = field(default_factory=list)
    scores: list[tuple[int, str, float]] = field(default_factory=list)
    """Step, task, mean utility."""
    validation: dict[str, float] = field(default_factory=dict)
    """Last validation losses by source."""


def train(
    config: TrainConfig,
    out: str | Path,
    *,
    device: str = "auto",
    folders: Folders | None = None,
    cache: str | Path | None = None,
    workers: int | None = None,
    score: Score | None = None,
    log: Callable[[str], None] = lambda line: None,
    on_step: Callable[[TrainingProgress], None] = lambda progress: None,
) -> Path:
    """Train a model, or continue an interrupted run in `out`, and return the folder of the exported model.

    One run at a time has the folder. Rows of tokens are kept in `cache` (default: `out`), where other runs on the same
    data find them. `workers` processes make the texts (default: one per core); they change nothing but the time it
    takes. `score` computes suite scores of snapshots, for configurations that ask for them.
    """
    out, cache, folders = Path(out), Path(out if cache is None else cache), folders or Folders()
    place, run, steps = resolve_device(device), config.run, config.optimizer.steps
    make_network_spec(config)  # Refuses sizes that do not fit together, before minutes go into the rows.
    key = data_key(config, folders)
    run_folder.make_folder(cache)

    with run_folder.lock_folder(out, (CURVE, SCORES, MODEL, SNAPSHOT), log):
        finished = read_export(out / MODEL)
        checkpoint = run_folder.load_checkpoint(out, place) if finished is None else None
        run_folder.check_same_run(out, finished or checkpoint, config, key)
        if finished is not None:
            log(f"{out} is finished; nothing to do")
            return out / MODEL
        if run.score_every and score is None:
            log("no suite scores during training: nobody to compute them")
        if run.compile and place.type != "cuda":
            log(f"not compiled: compilation is for CUDA devices, and this is {place}")
        if run.graph and place.type != "cuda":
            log(f"no graph of a step: graphs are for CUDA devices, and this is {place}")

        data = load_data(config, folders, cache, log, workers)
        trainer = Trainer(config, data, place)
        state = RunState(torch.zeros((), device=place))
        if checkpoint is not None:
            trainer.load_state_dict(checkpoint)
            state = RunState(**{part.name: checkpoint[part.name] for part in fields(RunState)})
            # Checkpoints hold plain values: `weights_only` reads no classes.
            state.curve = [CurvePoint(**point) for point in checkpoint["curve"]]
            log(f"going on from step {state.step}")
        shapes = " + ".join(f"{rows.group.rows} x {rows.group.length}" for rows in trainer.rows)
        log(f"{trainer.model.spec.parameters:,} parameters, {shapes} per step, on {place}")

        def is_due(every: int) -> bool:
            return every > 0 and state.step % every == 0

        last_line, now = (state.step, state.seconds), time.monotonic()
        while state.step < steps:
            result = trainer.step(state.step)
            # Added up on the device: reading a loss would wait for the step, and the next one could not be prepared.
            state.loss_sum, state.loss_count = state.loss_sum + result.loss, state.loss_count + 1
            state.step += 1
            is_last = state.step == steps
            validates = is_last or is_due(run.validate_every)
            writes_line = validates or is_due(run.log_every)
            if writes_line:
                loss = float(state.loss_sum) / state.loss_count
                if not math.isfinite(loss):
                    raise TrainingFailed(
                        f"the loss is {loss} after step {state.step}; allowed: a finite number; lower optimizer.rate "
                        "or optimizer.clip, or lengthen the warm-up"
                    )
                state.loss_sum, state.loss_count = torch.zeros_like(state.loss_sum), 0
                if validates:
                    state.validation = trainer.validate()
            # At a line of the curve the loss was read above, which waits for the device: there the seconds are right.
            before, now = now, time.monotonic()
            state.seconds += now - before

            progress = TrainingProgress(state.step, steps)
            if writes_line:
                point = CurvePoint(
                    state.step,
                    loss,
                    weighted_mean_loss(state.validation, config) if validates else None,
                    learning_rate(config.optimizer, state.step - 1),
                    float(result.gradient),
                    state.step * trainer.tokens_per_step,
                    state.seconds,
                )
                state.curve.append(point)
                write_curves(out, state)
                speed = (state.step - last_line[0]) / max(state.seconds - last_line[1], 1e-9)
                last_line = state.step, state.seconds
                remaining = (steps - state.step) / speed
                progress = TrainingProgress(state.step, steps, point, speed * trainer.tokens_per_step, remaining)
            on_step(progress)

            if score is not None and run.score_every and (is_last or is_due(run.score_every)):
                export_model(trainer.model, data.tokenizer, config, out / SNAPSHOT, {"steps": state.step})
                scores = dict(score(out / SNAPSHOT, run.score_prompts))
                state.scores += [(state.step, task, value) for task, value in scores.items()]
                write_curves(out, state)
                on_step(TrainingProgress(state.step, steps, scores=scores))
                # Scoring is not training: its time counts neither in the curve nor in the speed.
                now = time.monotonic()

            if is_due(run.checkpoint_every) and not is_last:
                # A checkpoint knows its run: started again with another configuration, it is refused and not gone on
                # from.
                identity = {"config": config.flatten(), "data": key}
                run_folder.save_checkpoint(out, {**identity, **trainer.state_dict(), **asdict(state)})

        notes = {
            "device": torch.cuda.get_device_name(place) if place.type == "cuda" else "cpu",
            "seed": config.seed,
            "steps": steps,
            "data": key,
            "rows": len(data.training),
            "left_out": dict(data.left_out),
            "loss": state.curve[-1].loss,
            "validation": state.curve[-1].validation,
            "validation_by_source": state.validation,
            "scores": {task: value for step, task, value in state.scores if step == steps},
        }
        export_model(trainer.model, data.tokenizer, config, out / MODEL, notes)
        return out / MODEL


def weighted_mean_loss(losses: Mapping[str, float], config: TrainConfig) -> float:
    """Return the mean of the sources' losses, weighted as in the training objective."""
    total = sum(source.weight for source in config.sources.values())
    return sum(losses[name] * source.weight for name, source in config.sources.items()) / total


def write_curves(out: Path, state: RunState) -> None:
    """Write `curve.csv` and `scores.csv` anew. They are for people: a run goes on from its checkpoint."""

    def write_csv(path: Path, rows: Iterable[Sequence[Any]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        write_text(path, text.getvalue())

    write_csv(out / CURVE, [[part.name for part in fields(CurvePoint)], *map(astuple, state.curve)])
    if state.scores:
        write_csv(out / SCORES, [("step", "task", "score"), *state.scores])
