"""Sparse dictionaries: the directions of which a site's activations are made up, trained from a recording's stream."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.data.activation_stream import BLOCK_ROWS, ActivationStream
from marlnb.analysis.dictionaries.dictionary import Dictionary
from marlnb.analysis.dictionaries.evaluation import evaluate_dictionary
from marlnb.formatting import format_clock, format_count
from marlnb.models.networks.sparse_autoencoder import SparseAutoencoder, SparseKind
from marlnb.training.collect.threads import torch_threads
from marlnb.training.progress import StatusLine

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

AUXILIARY_WEIGHT = 1 / 32
REFIT_PULL, LEAST_PULL = 0.05, 1e-6
RESAMPLE_AT = (0.25, 0.5, 0.75)
EPOCHS, FEWEST_STEPS = 20, 2000
"""By default; with fewer steps the features have not settled, however small the loss."""


@dataclass(frozen=True)
class Training:
    """How a dictionary is trained; `train_dictionary` documents each option."""

    kind: SparseKind
    k: int
    l1: float
    epochs: int
    batch_rows: int
    lr: float
    dead_after: int
    seed: int


def train_dictionary(
    recording: Recording,
    *,
    site: str,
    agent: str | Sequence[str] | None = None,
    units: Sequence[int] | None = None,
    from_rest: bool = False,
    n_features: int | None = None,
    kind: SparseKind = "topk",
    k: int = 8,
    l1: float = 0.1,
    epochs: int | None = None,
    batch_rows: int = 256,
    lr: float = 2e-3,
    seed: int = 0,
    progress: bool = True,
) -> Dictionary:
    """Trains a sparse autoencoder on one site of agents that share their network, streaming rows from the file.

    A fifth of the episodes is held out: reconstruction is told of those. A bounded number of rows is in memory.
    The L1 penalty shrinks features and bends the directions of those that coincide (Wright and Sharkey 2024), so that
    at its end the decoder is fitted anew by least squares to the features as they are (Engan et al. 1999).
    Features that never fire are brought back: made anew from badly reconstructed activations three times (Bricken et
    al. 2023, appendix), and for topk by an auxiliary loss on what is left over (Gao et al. 2024, section 2.4).

    Args:
        agent: whose activations; None: all agents of the site, who must share one network.
        units: the site's units that it is about, no others are read or written (those that choices hang on, say); None:
            all.
        from_rest: whether features add up from units that are all 0 and not from their mean: for units that are
            silent where nothing is there.
        n_features: None: four times the units.
        kind: topk (`k` features an activation) or standard (L1 penalty `l1`, in normalised units).
        epochs: passes over the training episodes; None: 20, and more of a small recording, to make 2000 steps.
        lr: Adam's, falling linearly to 0 over the last fifth.
    Raises:
        AnalysisError: an unknown site or agent, agents with networks of their own, a site that never varies, too few
            episodes to hold any out.
        KeyboardInterrupt is not caught: an interrupted training leaves nothing behind.
    """
    stream = ActivationStream(recording, site, agent, seed=seed, units=units)
    width = n_features or 4 * stream.n_units
    passes = epochs or max(EPOCHS, ceil(FEWEST_STEPS * batch_rows / (len(stream.train) * len(stream.agents))))
    settings = Training(kind, k, l1, passes, batch_rows, lr, 10 * batch_rows, seed)
    autoencoder = SparseAutoencoder(stream.n_units, width, kind, k, seed=seed)
    autoencoder.mean, autoencoder.scale = stream.mean_and_scale(from_rest=from_rest)
    autoencoder.decoder_bias.requires_grad_(not from_rest)  # else it stays 0, while training and when it is refitted
    with torch_threads(1):  # steps are small: more threads wait for each other
        losses = _fit(autoencoder, stream, settings, StatusLine() if progress else None)
        if kind == "standard":
            _refit(autoencoder, stream)
    return evaluate_dictionary(autoencoder, stream, site=site, losses=losses, from_rest=from_rest)


def _fit(
    autoencoder: SparseAutoencoder, stream: ActivationStream, settings: Training, line: StatusLine | None
) -> list[float]:
    """Mean training loss of each epoch."""
    optimizer = torch.optim.Adam(autoencoder.parameters(), lr=settings.lr, betas=(0.9, 0.999))
    rng = np.random.default_rng(settings.seed)
    silent = torch.zeros(autoencoder.n_features, dtype=torch.int64)  # examples since each feature fired
    resample = [int(share * settings.epochs) for share in RESAMPLE_AT]
    losses, began, done = [], time.monotonic(), 0
    total = settings.epochs * len(stream.train) * len(stream.agents)
    for epoch in range(settings.epochs):
        if epoch in resample and epoch:
            _make_anew(autoencoder, stream, silent >= settings.dead_after, rng, optimizer)
        left = 1 - epoch / settings.epochs
        optimizer.param_groups[0]["lr"] = settings.lr * min(1.0, left / 0.2)
        found = []
        for batch in stream.batches(stream.train, settings.batch_rows, rng):
            loss = _step(autoencoder, autoencoder.normalised(batch), silent, settings, optimizer)
            found.append(loss)
            done += len(batch)
            if line is not None and line.due:
                rate = done / (time.monotonic() - began)
                rest = format_clock(max(0, total - done) / rate)
                line.write(f"dictionary of {stream.site}: {done / total:.0%}, {format_count(rate)} rows/s, {rest} left")
        losses.append(float(np.mean(found)))
    if line is not None:
        line.write(
            f"dictionary of {stream.site}: {format_count(done)} rows in {format_clock(time.monotonic() - began)}"
        )
        line.end()
    return losses


@torch.no_grad()
def _refit(autoencoder: SparseAutoencoder, stream: ActivationStream) -> None:
    """The decoder that reconstructs best what the encoder finds; rows of length 1, their length given to the features.

    A pull towards the old rows, in units of each feature's root mean square, keeps features that go along with each
    other, as two of one direction do, from being played off against each other.
    """
    old = torch.cat((autoencoder.decoder, autoencoder.decoder_bias[None])).double()
    n_fitted = len(old) if autoencoder.decoder_bias.requires_grad else len(old) - 1
    products, targets = torch.zeros(len(old), len(old), dtype=torch.float64), torch.zeros_like(old)
    for _, values, acting in stream.blocks(stream.train):
        x = values[torch.from_numpy(acting)]
        features = torch.cat((autoencoder(x), torch.ones(len(x), 1)), -1).double()
        products += features.T @ features
        targets += features.T @ autoencoder.normalised(x).double()
    own = products.diagonal()
    pull = REFIT_PULL * own.clamp_min(LEAST_PULL * own.max())
    left, right = products + pull.diag(), targets + pull[:, None] * old
    rows = old.float()
    rows[:n_fitted] = torch.linalg.solve(left[:n_fitted, :n_fitted], right[:n_fitted]).float()
    bias, decoder = rows[-1], rows[:-1]
    size = decoder.norm(dim=1).clamp_min(1e-6)
    autoencoder.encoder_bias.add_((bias - autoencoder.decoder_bias) @ autoencoder.encoder).mul_(size)
    autoencoder.encoder.mul_(size)
    autoencoder.decoder.copy_(decoder)
    autoencoder.unit_length()
    autoencoder.decoder_bias.copy_(bias)


def _step(
    autoencoder: SparseAutoencoder,
    x: Tensor,
    silent: Tensor,
    settings: Training,
    optimizer: torch.optim.Optimizer,
) -> float:
    before = autoencoder.before(x)
    features = autoencoder.sparse(before)
    error = x - autoencoder.reconstruct(features)
    loss = error.square().mean()
    if settings.kind == "standard":
        loss = loss + settings.l1 * features.sum(-1).mean() / x.shape[-1] ** 0.5
    elif (dead := silent >= settings.dead_after).any():
        loss = loss + AUXILIARY_WEIGHT * _auxiliary(autoencoder, before, error.detach(), dead)
    optimizer.zero_grad()
    loss.backward()
    _keep_length(autoencoder)
    torch.nn.utils.clip_grad_norm_(autoencoder.parameters(), 1.0)
    optimizer.step()
    autoencoder.unit_length()
    fired = (features > 0).any(0)
    silent += len(x)
    silent[fired] = 0
    return loss.item()


def _auxiliary(autoencoder: SparseAutoencoder, before: Tensor, error: Tensor, dead: Tensor) -> Tensor:
    """How well the largest dead features express what the others left over (Gao et al. 2024, appendix A.2)."""
    n = min(int(dead.sum()), max(1, autoencoder.n_units // 2))
    largest = before.masked_fill(~dead, -torch.inf).topk(n, dim=-1)  # negative ones too: relu would keep them dead
    features = torch.zeros_like(before).scatter(-1, largest.indices, largest.values)
    return (features @ autoencoder.decoder - error).square().mean()


@torch.no_grad()
def _keep_length(autoencoder: SparseAutoencoder) -> None:
    """Takes out of the decoder's gradient what would only change the rows' length."""
    decoder, gradient = autoencoder.decoder, autoencoder.decoder.grad
    assert gradient is not None
    gradient -= (gradient * decoder).sum(1, keepdim=True) * decoder


@torch.no_grad()
def _make_anew(
    autoencoder: SparseAutoencoder,
    stream: ActivationStream,
    dead: Tensor,
    rng: np.random.Generator,
    optimizer: torch.optim.Optimizer,
) -> None:
    """Points dead features at activations that are badly reconstructed, drawn by their squared error."""
    n_dead = int(dead.sum())
    if not n_dead:
        return
    x = autoencoder.normalised(next(stream.batches(stream.train, BLOCK_ROWS, rng)))
    error = x - autoencoder.reconstruct(autoencoder.sparse(autoencoder.before(x)))
    weight = error.square().sum(-1).double().numpy()
    drawn = torch.from_numpy(rng.choice(len(x), n_dead, p=weight / weight.sum()))
    directions = error[drawn] / error[drawn].norm(dim=1, keepdim=True).clamp_min(1e-8)
    alive = ~dead
    size = autoencoder.encoder[:, alive].norm(dim=0).mean() if alive.any() else torch.tensor(1.0)
    autoencoder.decoder[dead] = directions
    share = 1.0 if autoencoder.kind == "topk" else 0.2  # among the k largest, a small one would never be seen
    autoencoder.encoder[:, dead] = share * size * directions.T
    autoencoder.encoder_bias[dead] = 0.0
    for parameter, rows in ((autoencoder.decoder, dead), (autoencoder.encoder, (slice(None), dead))):
        for time_step in ("exp_avg", "exp_avg_sq"):
            optimizer.state[parameter][time_step][rows] = 0.0
