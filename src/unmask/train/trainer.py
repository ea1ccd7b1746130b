"""The training run in one sitting: the network, a step, validation, and `train`, which runs them from start to export.

A killed run goes on from its last checkpoint when it is started again, and ends in the same bits on a CPU.
"""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from unmask.base.errors import UnmaskError
from unmask.models import Transformer, TransformerSpec, build_graph, compile_layers
from unmask.models.execution import resolve_device
from unmask.train import muon, run_folder
from unmask.train.batches import Group, draw_batch, make_groups, validation_batches
from unmask.train.config import OptimizerConfig, TrainConfig
from unmask.train.cuda_graph import REHEARSALS, BatchTensors, StepInputs, restored_after
from unmask.train.data import Rows, TrainingData, data_key, load_data
from unmask.train.export import export_model, read_finished
from unmask.train.loss import token_losses
from unmask.train.run_folder import CURVE, MODEL, SCORES, SNAPSHOT
from unmask.train.sources import Folders

SHIFT = {"llada": 0, "dream": 1}
"""Slots before a position at which each family reads the position's logits."""

Score = Callable[[Path, int], Mapping[str, float]]
"""Function (folder of a model, prompts per task) -> mean utility by task, on development prompts."""


class TrainingFailed(UnmaskError):
    """The loss is not a number."""


class StepResult(NamedTuple):
    """Numbers of one step, still on the device. The next replay of a recorded step overwrites them."""

    loss: Tensor
    gradient: Tensor
    """Norm of the gradient before clipping."""


@dataclass(frozen=True)
class CurvePoint:
    """A line of `curve.csv`."""

    step: int
    loss: float
    """Mean since the line before."""
    validation: float | None
    rate: float
    gradient: float
    """Norm of the last step's gradient before clipping."""
    tokens: int
    """Slots processed so far, padding included."""
    seconds: float
    """Time spent in training so far, over all attempts."""


@dataclass
class RunState:
    """What grows during a run. Together with weights and optimizer state it makes a checkpoint."""

    sum: Tensor
    """Sum of losses since the last line of the curve, kept on the device."""
    count: int = 0
    """Number of losses in the sum."""
    step: int = 0
    """Steps done."""
    seconds: float = 0.0
    points: list[CurvePoint] = field(default_factory=list)
    scores: list[tuple[int, str, float]] = field(default_factory=list)
    """Step, task, mean utility."""
    validation: dict[str, float] = field(default_factory=dict)
    """Last validation losses by source."""


@dataclass(frozen=True)
class TrainingProgress:
    """Where a run is. Sent after every step, with numbers when they were measured."""

    step: int
    steps: int
    point: CurvePoint | None = None
    tokens_per_second: float = 0.0
    remaining: float = 0.0
    """Seconds to the end at this speed."""
    scores: Mapping[str, float] | None = None


def network_spec(config: TrainConfig) -> TransformerSpec:
    """Sizes and conventions of the network that a configuration describes."""
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
    """Create the network: norms one, biases zero, matrices normal.

    Matrices that write to the residual stream are smaller by 1/sqrt(2 layers), so that its size does not grow with
    depth. Numbers are drawn on the CPU, in the order of the parameters, so that every device starts from the same ones.
    """
    model = Transformer(network_spec(config))
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
    """Linear growth over the warm-up, then half a cosine down to the final rate. `step` counts from 0."""
    if step < settings.warmup:
        return settings.rate * (step + 1) / settings.warmup
    done = (step - settings.warmup) / max(1, settings.steps - settings.warmup)
    return settings.final_rate + (settings.rate - settings.final_rate) * (1 + math.cos(math.pi * done)) / 2


def make_optimizers(model: Transformer, settings: OptimizerConfig, rate: Tensor | None) -> list[torch.optim.Optimizer]:
    """Create AdamW, or Muon for the layers' matrices and AdamW for the rest.

    On a GPU `rate` is a tensor that a recorded step reads again in every replay. On a CPU it is None.
    """
    matrices = muon.layer_matrices(model) if settings.kind == "muon" else {}
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


@dataclass(frozen=True)
class DeviceRows:
    """Rows of a group on the device. The host only says which of them a step reads."""

    group: Group
    tokens_EN: Tensor
    length_E: Tensor

    @classmethod
    def of(cls, group: Group, rows: Rows, filler: int, device: torch.device) -> "DeviceRows":
        """Copy the rows of a group to the device, padded to its length."""
        tokens = torch.from_numpy(rows.pad(group.chosen_E, group.length, filler))
        return cls(group, tokens.to(device), torch.from_numpy(rows.length_E[group.chosen_E]).to(device))


class Trainer:
    """A network in training, with its optimizers and its rows on the device."""

    def __init__(self, config: TrainConfig, data: TrainingData, device: torch.device):
        self.config, self.data, self.device = config, data, device
        cuda = device.type == "cuda"
        self.model = init_network(config).to(device)
        if config.run.compile and cuda:
            compile_layers(self.model)
        weights = [source.weight for source in config.sources.values()]
        groups = make_groups(data.training, config.data.lengths, weights, config.optimizer.batch)
        self.rows = [DeviceRows.of(group, data.training, data.ids.eos, device) for group in groups]
        self.inputs = StepInputs(groups, device)
        self.rate = self.inputs.rate if cuda else None
        self.optimizers = make_optimizers(self.model, config.optimizer, self.rate)
        self.records_step = config.run.graph and cuda
        self._run_update: Callable[[], StepResult] = self.update
        self._drawn_step: int | None = None

        # Held-out batches have the training batches' shapes, so that compiled code fits. Each source's losses are
        # weighted to sum to their mean. With every batch come the sources of its places.
        held_out, sources = data.held_out, len(config.sources)
        count_T = np.bincount(held_out.source_E, minlength=sources)
        shapes = {group.length: group.rows for group in groups}
        self.held_out: list[tuple[DeviceRows, list[tuple[BatchTensors, Tensor]]]] = []
        for group in make_groups(held_out, config.data.lengths, [1.0] * sources, 1):
            shaped = replace(group, rows=shapes.get(group.length, 32))
            source_E = held_out.source_E[group.chosen_E]
            weight_of = {place: 1.0 / count_T[source_E[members[0]]] for place, members in enumerate(group.members)}
            batches = []
            for batch in validation_batches(shaped, config.seed, config.optimizer.least_ratio, weight_of):
                source_R = source_E[batch.rows_B[batch.place_R // group.length]]
                batches.append((BatchTensors.of(batch, device), torch.from_numpy(source_R).to(device)))
            self.held_out.append((DeviceRows.of(shaped, held_out, data.ids.eos, device), batches))

    @property
    def tokens_per_step(self) -> int:
        """Slots that go through the network in a step, padding included."""
        return sum(rows.group.rows * rows.group.length for rows in self.rows)

    def step(self, step: int) -> StepResult:
        """Update the weights once. `step` counts from 0."""
        if self._drawn_step != step:
            self.draw(step)
        self.inputs.send()
        if self.rate is None:
            for group in (group for optimizer in self.optimizers for group in optimizer.param_groups):
                group["lr"] = learning_rate(self.config.optimizer, step)
        if self.records_step:
            # Recorded in the first step and not before, because a resumed run has its state only then.
            with restored_after(self.model, self.optimizers):
                self._run_update = build_graph(self.update, self.device, rehearsals=REHEARSALS)
            self.records_step = False
        result = self._run_update()
        # The device is busy with this step now: the host draws the next one meanwhile.
        if step + 1 < self.config.optimizer.steps:
            self.draw(step + 1)
        return result

    def draw(self, step: int) -> None:
        """Draw a step's rows and masks, and write them where `send` finds them."""
        settings = self.config.optimizer
        batches = [draw_batch(rows.group, self.config.seed, step, settings.least_ratio) for rows in self.rows]
        self.inputs.write(learning_rate(settings, step), batches)
        self._drawn_step = step

    def update(self) -> StepResult:
        """Update the weights with the batches on the device. Nothing in it waits for the device: it can be recorded."""
        loss = torch.zeros((), device=self.device)
        for rows, batch in zip(self.rows, self.inputs.batches, strict=True):
            group_loss = (self._losses(rows, batch) * batch.weight_R).sum()
            group_loss.backward()
            loss += group_loss.detach()
        gradient = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.optimizer.clip)
        for optimizer in self.optimizers:
            optimizer.step()
        self.model.zero_grad(set_to_none=True)
        return StepResult(loss, gradient)

    def validate(self) -> dict[str, float]:
        """Mean loss of each source's held-out rows, on masks that never change."""
        names = list(self.config.sources)
        total_T = torch.zeros(len(names), dtype=torch.float64, device=self.device)
        for rows, batches in self.held_out:
            for batch, source_R in batches:
                # Not under no_grad, for which compiled code would be compiled once more.
                losses_R = self._losses(rows, batch).detach()
                total_T.index_add_(0, source_R, (losses_R * batch.weight_R).double())
        return dict(zip(names, total_T.tolist(), strict=True))

    def _losses(self, rows: DeviceRows, batch: BatchTensors) -> Tensor:
        """Loss at each place of a batch, in the run's precision."""
        column_N = torch.arange(rows.group.length, device=self.device)
        valid_BN = column_N < rows.length_E.index_select(0, batch.rows_B)[:, None]
        tokens_BN = rows.tokens_EN.index_select(0, batch.rows_B).long()
        precision: AbstractContextManager[object] = nullcontext()
        if self.config.run.dtype == "bf16":
            # Without the cache of cast weights: a recorded step would go on reading the first ones.
            precision = torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)
        shift = SHIFT[self.config.model.family]
        with precision:
            return token_losses(
                self.model, tokens_BN, valid_BN, batch.hidden_BN, batch.place_R, self.data.ids.mask, shift
            )

    def state_dict(self) -> dict[str, Any]:
        """Weights and optimizer state. Settings are not part of it: the configuration has them."""
        states = [optimizer.state_dict()["state"] for optimizer in self.optimizers]
        return {"model": self.model.state_dict(), "optimizers": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` gave, before the first step."""
        self.model.load_state_dict(state["model"])
        for optimizer, stored in zip(self.optimizers, state["optimizers"], strict=True):
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": stored, "param_groups": groups})
            if self.rate is not None:
                # Loading copies tensors, the rate too, and a recorded step would read the copy for ever.
                for group in optimizer.param_groups:
                    group["lr"] = self.rate


def mean_loss(losses: Mapping[str, float], config: TrainConfig) -> float:
    """Mean of the sources' losses by their weights: the objective."""
    total = sum(source.weight for source in config.sources.values())
    return sum(losses[name] * source.weight for name, source in config.sources.items()) / total


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
    """Train a model, or go on where an interrupted run in `out` stopped, and return the folder of the exported model.

    One run at a time has the folder. Rows of tokens are kept in `cache` (default: `out`), where other runs on the same
    data find them. `workers` processes make the texts (default: one per core); they change nothing but the time it
    takes. `score` computes suite scores of snapshots, for configurations that ask for them.
    """
    out, cache, folders = Path(out), Path(out if cache is None else cache), folders or Folders()
    place, run, steps = resolve_device(device), config.run, config.optimizer.steps
    for folder in (out, cache):
        run_folder.check_folder(folder)
    key = data_key(config, folders)

    with run_folder.hold_folder(out, log):
        run_folder.check_same_run(out, config, key)
        if read_finished(out / MODEL) is not None:
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
        state = _restore(trainer, out, log)
        # Only now: a folder in which nothing was trained belongs to no configuration.
        run_folder.claim_folder(out, config, key)
        shapes = " + ".join(f"{rows.group.rows} x {rows.group.length}" for rows in trainer.rows)
        log(f"{trainer.model.spec.parameters:,} parameters, {shapes} per step, on {place}")

        def is_due(every: int) -> bool:
            return every > 0 and state.step % every == 0

        timed_step, timed_from, is_warm = state.step, time.monotonic(), False
        # The curve counts the seconds of all attempts.
        start = timed_from - state.seconds
        while state.step < steps:
            result = trainer.step(state.step)
            # Added up on the device: reading a loss would wait for the step, and the next one could not be prepared.
            state.sum, state.count, state.step = state.sum + result.loss, state.count + 1, state.step + 1
            is_last = state.step == steps
            validates = is_last or is_due(run.validate_every)
            progress = TrainingProgress(state.step, steps)
            if validates or is_due(run.log_every):
                loss = float(state.sum) / state.count
                if not math.isfinite(loss):
                    raise TrainingFailed(
                        f"the loss is {loss} after step {state.step}; allowed: a finite number; lower optimizer.rate "
                        "or optimizer.clip, or lengthen the warm-up"
                    )
                state.sum, state.count = torch.zeros_like(state.sum), 0
                if validates:
                    state.validation = trainer.validate()
                now = time.monotonic()
                point = CurvePoint(
                    state.step,
                    loss,
                    mean_loss(state.validation, config) if validates else None,
                    learning_rate(config.optimizer, state.step - 1),
                    float(result.gradient),
                    state.step * trainer.tokens_per_step,
                    now - start,
                )
                state.points.append(point)
                _write_curves(out, state)
                speed = (state.step - timed_step) / max(now - timed_from, 1e-9)
                if not is_warm:
                    # The steps before the first line hold compilation and warm-up: later speeds leave them out.
                    timed_step, timed_from, is_warm = state.step, now, True
                remaining = (steps - state.step) / speed if speed else 0.0
                progress = TrainingProgress(state.step, steps, point, speed * trainer.tokens_per_step, remaining)
            on_step(progress)

            if score is not None and run.score_every and (is_last or is_due(run.score_every)):
                paused = time.monotonic()
                export_model(trainer.model, data.tokenizer, config, out / SNAPSHOT, {"steps": state.step})
                scores = dict(score(out / SNAPSHOT, run.score_prompts))
                # Scoring is not training: its time counts neither in the curve nor in the speed.
                pause = time.monotonic() - paused
                start, timed_from = start + pause, timed_from + pause
                state.scores += [(state.step, task, value) for task, value in scores.items()]
                _write_curves(out, state)
                on_step(TrainingProgress(state.step, steps, scores=scores))

            if is_due(run.checkpoint_every) and not is_last:
                state.seconds = time.monotonic() - start
                checkpoint = {"step": state.step, **trainer.state_dict(), **asdict(state)}
                run_folder.save_checkpoint(out, checkpoint, state.step)

        notes = {
            "device": torch.cuda.get_device_name(place) if place.type == "cuda" else "cpu",
            "seed": config.seed,
            "steps": steps,
            "data": key,
            "rows": len(data.training),
            "left_out": dict(data.left_out),
            "loss": state.points[-1].loss,
            "validation": state.points[-1].validation,
            "validation_by_source": state.validation,
            "scores": {task: value for step, task, value in state.scores if step == steps},
        }
        export_model(trainer.model, data.tokenizer, config, out / MODEL, notes)
        return out / MODEL


def _restore(trainer: Trainer, out: Path, log: Callable[[str], None]) -> RunState:
    """Load the newest checkpoint into the trainer, and return where its run stood; a new state if there is none."""
    found = run_folder.load_checkpoint(out, trainer.device)
    if found is None:
        return RunState(torch.zeros((), device=trainer.device))
    path, stored = found
    try:
        trainer.load_state_dict(stored)
        state = RunState(**{part.name: stored[part.name] for part in fields(RunState)})
        state.points = [CurvePoint(**point) for point in stored["points"]]
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise run_folder.checkpoint_error(path, error) from error
    log(f"going on from step {state.step}")
    return state


def _write_curves(out: Path, state: RunState) -> None:
    """Write both CSV files anew. They are for people: a run goes on from the lines in its checkpoint."""
    run_folder.write_csv(out / CURVE, [part.name for part in fields(CurvePoint)], map(astuple, state.points))
    if state.scores:
        run_folder.write_csv(out / SCORES, ["step", "task", "score"], state.scores)
