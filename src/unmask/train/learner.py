"""One optimisation step and one validation pass. Rows live on the device; the host only says which to read."""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unmask.core.graphs import record
from unmask.denoisers.graphs import compile_layers
from unmask.denoisers.transformer import Spec, Transformer
from unmask.train import muon
from unmask.train.batches import Group, draw, fixed, groups
from unmask.train.config import Config, Optimizer
from unmask.train.data import Pool, Rows
from unmask.train.feed import Feed, Inputs
from unmask.train.loss import token_losses
from unmask.train.replay import REHEARSALS, undone

SHIFT = {"llada": 0, "dream": 1}


def spec_of(config: Config) -> Spec:
    """The network a configuration asks for, with its family's conventions."""
    model = config.model
    return Spec(
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


def initial(config: Config) -> Transformer:
    """Norms one, biases zero, matrices normal; those that write to the residual stream smaller, by 1/sqrt(2 layers).

    Drawn on the CPU, so that every device starts from the same numbers.
    """
    model = Transformer(spec_of(config))
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


def learning_rate(settings: Optimizer, step: int) -> float:
    """Linear growth over the warm-up, then half a cosine down to the final rate; `step` counts from 0."""
    if step < settings.warmup:
        return settings.rate * (step + 1) / settings.warmup
    done = (step - settings.warmup) / max(1, settings.steps - settings.warmup)
    return settings.final_rate + (settings.rate - settings.final_rate) * (1 + math.cos(math.pi * done)) / 2


@dataclass(frozen=True)
class Table:
    """A group's rows on the device."""

    group: Group
    tokens_EN: Tensor
    length_E: Tensor

    @classmethod
    def of(cls, group: Group, rows: Rows, filler: int, device: torch.device) -> "Table":
        tokens = rows.padded(group.chosen_E, group.length, filler)
        return cls(
            group, torch.from_numpy(tokens).to(device), torch.from_numpy(rows.length_E[group.chosen_E]).to(device)
        )

    def losses(self, model: Transformer, inputs: Inputs, mask_id: int, shift: int) -> Tensor:
        """The loss at each place of a batch."""
        column_N = torch.arange(self.group.length, device=self.tokens_EN.device)
        valid_BN = column_N < self.length_E.index_select(0, inputs.rows_B)[:, None]
        tokens_BN = self.tokens_EN.index_select(0, inputs.rows_B).long()
        return token_losses(model, tokens_BN, valid_BN, inputs.hidden_BN, inputs.place_R, mask_id, shift)


@dataclass(frozen=True)
class Stepped:
    """What one step measured, still on the device, where the next step may overwrite it."""

    loss: Tensor
    gradient: Tensor
    """Norm before clipping."""


class Learner:
    """A network in training with its optimizer and its rows."""

    def __init__(self, config: Config, pool: Pool, device: torch.device):
        self.config, self.device = config, device
        self.mask_id, self.shift = pool.ids.mask, SHIFT[config.model.family]
        self.model = initial(config).to(device)
        if config.run.compile and device.type == "cuda":
            compile_layers(self.model)
        weights = [source.weight for source in config.sources.values()]
        settings = config.optimizer
        self.tables = [
            Table.of(group, pool.training, pool.ids.eos, device)
            for group in groups(pool.training, config.data.lengths, weights, settings.batch)
        ]
        rows = {table.group.length: table.group.rows for table in self.tables}
        self._held_out = _held_out_tables(pool, config, rows, device)
        self._feed = Feed([table.group for table in self.tables], device)
        self._written: int | None = None
        # On a GPU the rate is a tensor that steps read where it lies; elsewhere optimizers want a number.
        self._rate: Tensor | None = self._feed.rate if device.type == "cuda" else None
        self.optimizers = _optimizers(self.model, settings, self._rate)
        self._update: Callable[[], Stepped] = self._eager
        self._to_record = config.run.graph and device.type == "cuda"

    @property
    def tokens_per_step(self) -> int:
        """Slots that go through the network, padding included."""
        return sum(table.group.rows * table.group.length for table in self.tables)

    def step(self, step: int) -> Stepped:
        """One update of the weights; `step` counts from 0."""
        if self._written != step:
            self._write(step)
        self._feed.send()
        if self._rate is None:
            for group in (group for optimizer in self.optimizers for group in optimizer.param_groups):
                group["lr"] = learning_rate(self.config.optimizer, step)
        if self._to_record:
            # Not before the first step: a resumed run has its state by now.
            with undone(self.model, self.optimizers):
                self._update = record(self._eager, self.device, rehearsals=REHEARSALS)
            self._to_record = False
        stepped = self._update()
        # The device has work now: time to draw what comes next.
        if step + 1 < self.config.optimizer.steps:
            self._write(step + 1)
        return stepped

    def _write(self, step: int) -> None:
        """Draw a step and put it where `send` finds it."""
        settings = self.config.optimizer
        drawn = [draw(table.group, self.config.seed, step, settings.least_ratio) for table in self.tables]
        self._feed.write(learning_rate(settings, step), drawn)
        self._written = step

    def _eager(self) -> Stepped:
        """The update that the feed asks for. It never waits for the device, so that it can be recorded."""
        total = torch.zeros((), device=self.device)
        for table, inputs in zip(self.tables, self._feed.inputs, strict=True):
            with self._autocast():
                losses_R = table.losses(self.model, inputs, self.mask_id, self.shift)
            loss = (losses_R * inputs.weight_R).sum()
            loss.backward()
            total += loss.detach()
        gradient = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.optimizer.clip)
        for optimizer in self.optimizers:
            optimizer.step()
        self.model.zero_grad(set_to_none=True)
        return Stepped(total, gradient)

    def validate(self) -> dict[str, float]:
        """Loss of each source's held-out rows on masks that never change."""
        names = list(self.config.sources)
        total_T = torch.zeros(len(names), dtype=torch.float64, device=self.device)
        for table, batches in self._held_out:
            for inputs, source_R in batches:
                # Not under no_grad: compiled code would be compiled once more for it.
                with self._autocast():
                    losses_R = table.losses(self.model, inputs, self.mask_id, self.shift)
                total_T.index_add_(0, source_R, (losses_R.detach() * inputs.weight_R).double())
        return dict(zip(names, total_T.tolist(), strict=True))

    def state(self) -> dict[str, Any]:
        """Weights and the optimizers' memory. Settings are not part of it: the configuration has them."""
        return {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict()["state"] for optimizer in self.optimizers],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave; before the first step."""
        self.model.load_state_dict(state["model"])
        for optimizer, kept in zip(self.optimizers, state["optimizers"], strict=True):
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": kept, "param_groups": groups})
            if self._rate is not None:
                # Loading makes copies, of the rate too.
                for group in optimizer.param_groups:
                    group["lr"] = self._rate

    def _autocast(self) -> AbstractContextManager[object]:
        if self.config.run.dtype == "fp32":
            return nullcontext()
        # Weights that were cast once may not be kept: a recording would go on reading the first ones.
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)


def mixed(losses: Mapping[str, float], config: Config) -> float:
    """The objective: sources' losses by weight."""
    total = sum(source.weight for source in config.sources.values())
    return sum(losses[name] * source.weight for name, source in config.sources.items()) / total


def _held_out_tables(
    pool: Pool, config: Config, shapes: dict[int, int], device: torch.device
) -> list[tuple[Table, list[tuple[Inputs, Tensor]]]]:
    """Held-out rows in batches of the training shapes, weighed so that each source's losses sum to their mean.

    With every batch come the sources of its places.
    """
    rows = pool.held_out
    count_T = np.bincount(rows.source_E, minlength=len(config.sources))
    tables = []
    for group in groups(rows, config.data.lengths, [1.0] * len(config.sources), 1):
        shaped = replace(group, rows=shapes.get(group.length, 32))
        source_E = rows.source_E[group.chosen_E]
        weights = {place: 1.0 / count_T[source_E[members[0]]] for place, members in enumerate(group.members)}
        batches = []
        for batch in fixed(shaped, config.seed, config.optimizer.least_ratio, weights):
            source_R = source_E[batch.rows_B[batch.place_R // group.length]]
            batches.append((Inputs.of(batch, device), torch.from_numpy(source_R).to(device)))
        tables.append((Table.of(shaped, rows, pool.ids.eos, device), batches))
    return tables


def _optimizers(model: Transformer, settings: Optimizer, rate: Tensor | None) -> list[torch.optim.Optimizer]:
    """AdamW for everything, or Muon for the layers' matrices and AdamW for the rest; `rate` if it is to be a tensor."""
    hidden = muon.matrices(model) if settings.kind == "muon" else {}
    rest = [p for p in model.parameters() if p not in hidden]
    kinds = [
        {"params": [p for p in rest if p.dim() > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in rest if p.dim() == 1], "weight_decay": 0.0},
    ]
    # A rate in a tensor is a GPU's, and there steps are to be recorded.
    on_gpu = rate is not None
    lr = settings.rate if rate is None else rate
    adamw = torch.optim.AdamW(kinds, lr=lr, betas=settings.betas, eps=settings.eps, fused=on_gpu, capturable=on_gpu)
    if not hidden:
        return [adamw]
    return [muon.Muon(hidden, list(hidden.values()), lr=lr, weight_decay=settings.weight_decay), adamw]
