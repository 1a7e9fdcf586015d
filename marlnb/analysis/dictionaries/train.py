"""Train a sparse dictionary: the directions that a site's activations are sums of, from a recording's stream."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from marlnb.analysis.data.activation_stream import BLOCK_ROWS, ActivationStream
from marlnb.analysis.dictionaries.dictionary import Dictionary
from marlnb.analysis.dictionaries.evaluation import evaluate_dictionary
from marlnb.display.formatting import format_clock, format_count
from marlnb.display.status_line import StatusLine
from marlnb.models.networks.sparse_autoencoder import SparseAutoencoder, SparseKind
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.training.collect.threads import torch_threads
from marlnb.values import checked_number

AUXILIARY_WEIGHT = 1 / 32
PRIOR_WEIGHT, MIN_RELATIVE_POWER = 0.05, 1e-6
RESAMPLE_AT = (0.25, 0.5, 0.75)
"""Shares of the training at which dead features are reinitialised."""
N_EPOCHS, MIN_STEPS = 20, 2000
"""Defaults; with fewer steps features have not converged, however small the loss."""
FINAL_DECAY_SHARE = 0.2


@dataclass(frozen=True)
class DictionaryTraining:
    """Options of one training run; `train_dictionary` documents them."""

    kind: SparseKind
    l1: float
    epochs: int
    batch_rows: int
    lr: float
    dead_after: int
    seed: int


def train_dictionary(
    recording: RecordingLike,
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
    checkpoint: int | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Dictionary:
    """Trains a sparse autoencoder on one site of agents that share their network, streaming rows from the file.

    With normalised activations x, features `f = sparse(W_e (x - b) + b_e)` and reconstruction `x̂ = f W_d + b`, the loss
    is `mean((x - x̂)²)`, plus `l1 |f|_1 / sqrt(n_units)` for the kind standard. A fifth of the episodes is held out, and
    the reconstruction is evaluated on these. Memory does not grow with the recording.

    The L1 penalty shrinks features and bends the directions of those that coincide (Wright and Sharkey 2024), so the
    decoder is finally refitted to the features by least squares (Engan et al. 1999). Features that never fire are
    reinitialised from badly reconstructed activations three times (Bricken et al. 2023, appendix), and for topk trained
    by an auxiliary loss on the remaining error (Gao et al. 2024, section 2.4, arXiv:2406.04093).

    Args:
        agent: one or several agents; None: all agents of the site, who must share one network.
        units: units of the site that are read and written, for example those that actions depend on; None for all.
        from_rest: whether features add up from units at 0 instead of from their mean: for units that are silent if
            nothing is present.
        n_features: None: four times the units.
        kind: topk (`k` active features) or standard (L1 penalty `l1`, in normalised units).
        k: active features of topk.
        l1: penalty of standard.
        epochs: passes over the training episodes; None: 20, or more for a small recording, to make 2000 steps.
        batch_rows: examples in each step.
        lr: Adam's learning rate, which falls linearly to 0 over the last fifth.
        checkpoint: iteration whose rows are read; required if a recording spans several.
        progress: whether to print the progress.
    Raises:
        ConfigError: a number out of range.
        AnalysisError: an unknown site or agent, agents with different networks, a site that never varies, too few
            episodes to hold any out, several checkpoints and none chosen.
    """
    n_features = None if n_features is None else checked_number(n_features, int, "n_features", ge=1)
    epochs = None if epochs is None else checked_number(epochs, int, "epochs", ge=1)
    batch_rows, seed = checked_number(batch_rows, int, "batch_rows", ge=1), checked_number(seed, int, "seed", ge=0)
    lr, l1 = checked_number(lr, float, "lr", gt=0), checked_number(l1, float, "l1", ge=0)
    k = checked_number(k, int, "k", ge=1) if kind == "topk" else k
    recording = opened_recording(recording)
    stream = ActivationStream(recording, site, agent, seed=seed, units=units, checkpoint=checkpoint)
    if n_features is None:
        n_features = 4 * stream.n_units
    if epochs is None:
        epochs = max(N_EPOCHS, ceil(MIN_STEPS * batch_rows / (len(stream.train) * len(stream.agents))))
    settings = DictionaryTraining(kind, l1, epochs, batch_rows, lr, dead_after=10 * batch_rows, seed=seed)
    autoencoder = SparseAutoencoder(stream.n_units, n_features, kind, k, seed=seed)
    autoencoder.mean, autoencoder.scale = stream.mean_and_scale(from_rest=from_rest)
    autoencoder.decoder_bias.requires_grad_(not from_rest)  # otherwise it stays 0, here and in the refit
    with torch_threads(1):  # steps are small: more threads wait for each other
        losses = _fit(autoencoder, stream, settings, StatusLine() if progress else None)
        if kind == "standard":
            _refit_decoder(autoencoder, stream)
    return evaluate_dictionary(autoencoder, stream, site=site, losses=losses, from_rest=from_rest)


def _fit(
    autoencoder: SparseAutoencoder, stream: ActivationStream, settings: DictionaryTraining, line: StatusLine | None
) -> list[float]:
    """Mean training loss of each epoch."""
    optimizer = torch.optim.Adam(autoencoder.parameters(), lr=settings.lr, betas=(0.9, 0.999))
    rng = np.random.default_rng(settings.seed)
    since_fired = torch.zeros(autoencoder.n_features, dtype=torch.int64)  # in examples
    resample_epochs = [int(share * settings.epochs) for share in RESAMPLE_AT]
    losses, started, done = [], time.monotonic(), 0
    total = settings.epochs * len(stream.train) * len(stream.agents)
    for epoch in range(settings.epochs):
        if epoch in resample_epochs and epoch:
            _reinitialise(autoencoder, stream, since_fired >= settings.dead_after, rng, optimizer)
        share_left = 1 - epoch / settings.epochs
        optimizer.param_groups[0]["lr"] = settings.lr * min(1.0, share_left / FINAL_DECAY_SHARE)
        epoch_losses = []
        for batch in stream.batches(stream.train, settings.batch_rows, rng):
            epoch_losses.append(_step(autoencoder, autoencoder.normalised(batch), since_fired, settings, optimizer))
            done += len(batch)
            if line is not None and line.due:
                rate = done / (time.monotonic() - started)
                left = format_clock(max(0, total - done) / rate)
                line.write(f"dictionary of {stream.site}: {done / total:.0%}, {format_count(rate)} rows/s, {left} left")
        losses.append(float(np.mean(epoch_losses)))
    if line is not None:
        duration = format_clock(time.monotonic() - started)
        line.write(f"dictionary of {stream.site}: {format_count(done)} rows in {duration}")
        line.end()
    return losses


def _step(
    autoencoder: SparseAutoencoder, x: Tensor, since_fired: Tensor, settings: DictionaryTraining, optimizer: Optimizer
) -> float:
    """One gradient step on normalised activations `[example, unit]`; updates `since_fired` in place."""
    pre_activation = autoencoder.before(x)
    features = autoencoder.sparse(pre_activation)
    error = x - autoencoder.reconstruct(features)
    loss = error.square().mean()
    if settings.kind == "standard":
        loss = loss + settings.l1 * features.sum(-1).mean() / x.shape[-1] ** 0.5
    elif (dead := since_fired >= settings.dead_after).any():
        loss = loss + AUXILIARY_WEIGHT * _auxiliary_loss(autoencoder, pre_activation, error.detach(), dead)
    optimizer.zero_grad()
    loss.backward()
    _remove_radial_gradient(autoencoder)
    torch.nn.utils.clip_grad_norm_(autoencoder.parameters(), 1.0)
    optimizer.step()
    autoencoder.unit_length()
    fired = (features > 0).any(0)
    since_fired += len(x)
    since_fired[fired] = 0
    return loss.item()


def _auxiliary_loss(autoencoder: SparseAutoencoder, pre_activation: Tensor, error: Tensor, dead: Tensor) -> Tensor:
    """`mean((e - ê)²)`, the error e reconstructed by the largest dead features (Gao et al. 2024, appendix A.2)."""
    n = min(int(dead.sum()), max(1, autoencoder.n_units // 2))
    # negative values take part as well: a relu would give dead features no gradient
    largest = pre_activation.masked_fill(~dead, -torch.inf).topk(n, dim=-1)
    features = torch.zeros_like(pre_activation).scatter(-1, largest.indices, largest.values)
    return (features @ autoencoder.decoder - error).square().mean()


@torch.no_grad()
def _remove_radial_gradient(autoencoder: SparseAutoencoder) -> None:
    """Removes the part of the decoder's gradient that only changes the rows' length, which is fixed at 1."""
    decoder, gradient = autoencoder.decoder, autoencoder.decoder.grad
    assert gradient is not None
    gradient -= (gradient * decoder).sum(1, keepdim=True) * decoder


@torch.no_grad()
def _reinitialise(
    autoencoder: SparseAutoencoder,
    stream: ActivationStream,
    dead: Tensor,
    rng: np.random.Generator,
    optimizer: Optimizer,
) -> None:
    """Points dead features at badly reconstructed activations, drawn with their squared error as weight."""
    n_dead = int(dead.sum())
    if not n_dead:
        return
    x = autoencoder.normalised(next(stream.batches(stream.train, BLOCK_ROWS, rng)))
    error = x - autoencoder.reconstruct(autoencoder.sparse(autoencoder.before(x)))
    weight = error.square().sum(-1).double().numpy()
    drawn = torch.from_numpy(rng.choice(len(x), n_dead, p=weight / weight.sum()))
    directions = error[drawn] / error[drawn].norm(dim=1, keepdim=True).clamp_min(1e-8)
    alive = ~dead
    length = autoencoder.encoder[:, alive].norm(dim=0).mean() if alive.any() else torch.tensor(1.0)
    autoencoder.decoder[dead] = directions
    share = 1.0 if autoencoder.kind == "topk" else 0.2  # a short row would never be among the k largest
    autoencoder.encoder[:, dead] = share * length * directions.T
    autoencoder.encoder_bias[dead] = 0.0
    for parameter, rows in ((autoencoder.decoder, dead), (autoencoder.encoder, (slice(None), dead))):
        for adam_moment in ("exp_avg", "exp_avg_sq"):
            optimizer.state[parameter][adam_moment][rows] = 0.0


@torch.no_grad()
def _refit_decoder(autoencoder: SparseAutoencoder, stream: ActivationStream) -> None:
    """Fits the decoder to the features by least squares; rows get length 1, and the features their old length.

    `min |x - F D|² + |D - D_old|²_W`. The weights W, relative to each feature's power, prevent features that fire
    together, for example two of one direction, from cancelling each other with large opposite rows.
    """
    old = torch.cat((autoencoder.decoder, autoencoder.decoder_bias[None])).double()
    n_fitted = len(old) if autoencoder.decoder_bias.requires_grad else len(old) - 1
    products, targets = torch.zeros(len(old), len(old), dtype=torch.float64), torch.zeros_like(old)
    for _, values, acting in stream.blocks(stream.train):
        x = values[torch.from_numpy(acting)]
        features = torch.cat((autoencoder(x), torch.ones(len(x), 1)), -1).double()
        products += features.T @ features
        targets += features.T @ autoencoder.normalised(x).double()
    power = products.diagonal()
    weight = PRIOR_WEIGHT * power.clamp_min(MIN_RELATIVE_POWER * power.max())
    left, right = products + weight.diag(), targets + weight[:, None] * old
    rows = old.float()
    rows[:n_fitted] = torch.linalg.solve(left[:n_fitted, :n_fitted], right[:n_fitted]).float()
    bias, decoder = rows[-1], rows[:-1]
    length = decoder.norm(dim=1).clamp_min(1e-6)
    autoencoder.encoder_bias.add_((bias - autoencoder.decoder_bias) @ autoencoder.encoder).mul_(length)
    autoencoder.encoder.mul_(length)
    autoencoder.decoder.copy_(decoder)
    autoencoder.unit_length()
    autoencoder.decoder_bias.copy_(bias)
