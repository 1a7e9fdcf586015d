"""Prune a dictionary to no more features than its activations need.

A dictionary with too many features gives one to a combination that often occurs: two concepts that appear together
share a feature, and neither of their own directions is found (absorption: Chanin et al. 2024, arXiv:2409.14507). Such
features are recognised by leaving them out: the others express the same. The procedure alternates: all examples are
coded with all features at once, directions are fitted to the codes by least squares (Engan et al. 1999), and features
that the others can replace are removed. At the end an encoder is trained to produce the codes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.data.activation_stream import ActivationStream
from marlnb.analysis.dictionaries.dictionary import Dictionary
from marlnb.analysis.dictionaries.evaluation import evaluate_dictionary
from marlnb.errors import AnalysisError
from marlnb.models.networks.sparse_autoencoder import SparseAutoencoder
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.training.collect.threads import torch_threads
from marlnb.values import checked_number

MAX_REMOVED_AT_ONCE = 3
MAX_LOSS_OF_FURTHER = 0.02
"""Features after the first are removed in the same round only if less than this share of what they write is lost."""
MAX_COSINE_OF_REMOVED = 0.3
"""Features of one round must differ this much, since similar ones might replace each other."""
N_FITS_PER_ROUND, N_FITS_AT_END = 4, 10
N_STEPS, N_STEPS_OF_LOSS = (25, 15), (40, 20)
"""Of coding and of debiasing: in each fit, and where the loss without a feature is measured."""
MAX_EXAMPLES_PER_FEATURE, MIN_EXAMPLES_PER_FEATURE = 400, 10
PRIOR_WEIGHT = 1e-3
ACTIVE = 1e-3
N_ENCODER_STEPS, ENCODER_BATCH, ENCODER_LR = 1500, 256, 5e-3


@dataclass(frozen=True)
class _Code:
    """Sparse codes of the examples.

    Attributes:
        directions: `[feature, unit]`, of length 1.
        bias: `[unit]`; None for a dictionary from rest.
        penalised: `[example, feature]`, codes that the L1 penalty shrinks.
        values: `[example, feature]`, codes of the same features without the penalty.
    """

    directions: Tensor
    bias: Tensor | None
    penalised: Tensor
    values: Tensor

    def without(self, features: list[int]) -> _Code:
        rest = torch.ones(len(self.directions), dtype=torch.bool)
        rest[features] = False
        return _Code(self.directions[rest], self.bias, self.penalised[:, rest], self.values[:, rest])

    def centred(self, x: Tensor) -> Tensor:
        """Activations `[example, unit]` minus the bias."""
        return x if self.bias is None else x - self.bias


def prune_dictionary(
    dictionary: Dictionary,
    recording: RecordingLike,
    *,
    l1: float = 0.5,
    max_loss: float = 0.2,
    max_rows: int = 4000,
    checkpoint: int | None = None,
    seed: int = 0,
) -> Dictionary:
    """Removes features that the others can replace, one after the other, and refits those that stay.

    Args:
        l1: penalty of the codes, in the units of `train_dictionary`.
        max_loss: a feature is removed if less than this share of what it writes (its sum of squares) is then missing.
        max_rows: examples that are coded.
        checkpoint: that of the dictionary's training; required if a recording spans several.
        seed: that of the dictionary's training, so that the same episodes are held out.
    Returns:
        A dictionary of kind standard with at least one and at most as many features, of the same units, and from rest
        if the old one was.
    Raises:
        ConfigError: a number out of range.
        AnalysisError: none of its features ever fires, or the recording lacks the dictionary's site or units.
    """
    l1, max_loss = checked_number(l1, float, "l1", ge=0), checked_number(max_loss, float, "max_loss", ge=0)
    max_rows, seed = checked_number(max_rows, int, "max_rows", ge=1), checked_number(seed, int, "seed", ge=0)
    if not (dictionary.density > 0).any():
        raise AnalysisError(f"none of the {dictionary.n_features} features of {dictionary.site} ever fires")
    units = dictionary.units
    recording = opened_recording(recording)
    stream = ActivationStream(
        recording, dictionary.site, dictionary.agents, seed=seed, units=units or None, checkpoint=checkpoint
    )
    old = dictionary.autoencoder.narrowed(units) if units else dictionary.autoencoder
    with torch_threads(1), torch.no_grad():
        x = _examples(stream, old, max_rows, np.random.default_rng(seed))
        penalty = l1 * stream.n_units**0.5 / 2  # of half a squared error, not of its mean over units
        alive = torch.from_numpy(dictionary.density > 0)
        no_code = torch.zeros(len(x), int(alive.sum()))
        bias = None if dictionary.from_rest else x.mean(0)
        code = _Code(old.decoder[alive], bias, no_code, no_code)
        while True:
            code = _fit(x, code, penalty, N_FITS_PER_ROUND)
            removed = _replaceable(x, code, penalty, max_loss)
            if not removed:
                break
            code = code.without(removed)
        code = _fit(x, code, penalty, N_FITS_AT_END)
    autoencoder = SparseAutoencoder(stream.n_units, len(code.directions), "standard", 0, seed=seed)
    autoencoder.mean, autoencoder.scale = old.mean.clone(), old.scale.clone()
    with torch_threads(1):
        losses = _train_encoder(autoencoder, x, code, seed)
    return evaluate_dictionary(autoencoder, stream, site=dictionary.site, losses=losses, from_rest=dictionary.from_rest)


def _examples(
    stream: ActivationStream, autoencoder: SparseAutoencoder, max_rows: int, rng: np.random.Generator
) -> Tensor:
    """Normalised activations `[example, unit]`, drawn uniformly from the training episodes."""
    n = max(1, max_rows // len(stream.agents))
    index = stream.train if len(stream.train) <= n else np.sort(rng.choice(stream.train, n, replace=False))
    parts = [values[torch.from_numpy(acting)] for _, values, acting in stream.blocks(index)]
    return autoencoder.normalised(torch.cat(parts))


def _fit(x: Tensor, code: _Code, penalty: float, n_fits: int) -> _Code:
    """Alternates between codes for the directions and directions for the codes.

    Directions D solve `min |x - F D|² + |D - D_old|²_W` with the codes F (and a constant for the bias); the weights W
    keep features that rarely fire near their old direction. Their length is moved into the codes.
    """
    for _ in range(n_fits):
        penalised, values = _encode(code.centred(x), code.directions, penalty, code.penalised)
        if code.bias is None:
            features, old = values.double(), code.directions.double()
        else:
            features = torch.cat((values, torch.ones(len(x), 1)), 1).double()
            old = torch.cat((code.directions, code.bias[None])).double()
        products = features.T @ features
        weight = PRIOR_WEIGHT * products.diagonal() + 1e-9
        targets = features.T @ x.double() + weight[:, None] * old
        rows = torch.linalg.solve(products + weight.diag(), targets).float()
        directions, bias = (rows, None) if code.bias is None else (rows[:-1], rows[-1])
        length = directions.norm(dim=1).clamp_min(1e-12)
        code = _Code(directions / length[:, None], bias, penalised * length, values * length)
    return code


def _encode(
    x: Tensor, directions: Tensor, penalty: float, start: Tensor, n_steps: tuple[int, int] = N_STEPS
) -> tuple[Tensor, Tensor]:
    """Codes `f >= 0` that minimise `1/2 |x - f D|² + penalty |f|_1`, and of the same features without the penalty.

    Source: Beck and Teboulle 2009, A Fast Iterative Shrinkage-Thresholding Algorithm (FISTA).
    """
    gram, correlation = directions @ directions.T, x @ directions.T
    step = 1 / torch.linalg.eigvalsh(gram)[-1]
    penalised = _fista(start, gram, correlation - penalty, step, n_steps[0], None)
    return penalised, _fista(penalised, gram, correlation, step, n_steps[1], penalised > ACTIVE)


def _fista(
    start: Tensor, gram: Tensor, correlation: Tensor, step: Tensor, n_steps: int, support: Tensor | None
) -> Tensor:
    """Accelerated projected gradient descent on `1/2 f G f' - f c'` with `f >= 0`.

    Args:
        support: `[example, feature]` bool, features that may be above 0; None for all.
    """
    code, extrapolated, momentum = start, start, 1.0
    move, offset = torch.eye(len(gram)) - step * gram, step * correlation  # f - step (f G - c) = f move + offset
    for _ in range(n_steps):
        new = torch.addmm(offset, extrapolated, move).relu_()
        if support is not None:
            new *= support
        next_momentum = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        extrapolated = torch.lerp(code, new, 1 + (momentum - 1) / next_momentum)
        code, momentum = new, next_momentum
    return code


def _replaceable(x: Tensor, code: _Code, penalty: float, max_loss: float) -> list[int]:
    """Features to remove in this round: those that lose least, a few at a time, none similar to another of them."""
    if len(code.directions) == 1:
        return []
    loss = _loss_without(x, code, penalty)
    cosine = (code.directions @ code.directions.T).abs()
    removed: list[int] = []
    for feature in loss.argsort()[: 2 * MAX_REMOVED_AT_ONCE].tolist():
        limit = MAX_LOSS_OF_FURTHER if removed else max_loss
        if loss[feature] < limit and all(cosine[feature, other] < MAX_COSINE_OF_REMOVED for other in removed):
            removed.append(feature)
    return removed[: min(MAX_REMOVED_AT_ONCE, len(loss) - 1)]


def _loss_without(x: Tensor, code: _Code, penalty: float) -> Tensor:
    """`[feature]`, the squared error that removing it adds, divided by the sum of squares of what it writes."""
    loss = torch.zeros(len(code.directions))
    error = (code.centred(x) - code.values @ code.directions).square().sum(1)
    for feature in range(len(loss)):
        active = (code.values[:, feature] > ACTIVE).nonzero()[:MAX_EXAMPLES_PER_FEATURE, 0]
        if len(active) < MIN_EXAMPLES_PER_FEATURE:  # too rare to have a direction of its own
            continue
        others = torch.arange(len(loss)) != feature
        examples, directions = code.centred(x[active]), code.directions[others]
        _, values = _encode(examples, directions, penalty, code.penalised[active][:, others], N_STEPS_OF_LOSS)
        added = (examples - values @ directions).square().sum(1) - error[active]
        loss[feature] = added.sum() / code.values[active, feature].square().sum()
    return loss


def _train_encoder(autoencoder: SparseAutoencoder, x: Tensor, code: _Code, seed: int) -> list[float]:
    """Sets the decoder to the code's directions and trains the encoder to produce its values.

    Returns:
        mean losses of tenths of the training.
    """
    with torch.no_grad():
        autoencoder.decoder.copy_(code.directions)
        autoencoder.decoder_bias.copy_(torch.zeros_like(x[0]) if code.bias is None else code.bias)
        centred = code.centred(x)
        ridge = 1e-3 * len(x) * torch.eye(autoencoder.n_units)  # for units that are always 0
        autoencoder.encoder.copy_(torch.linalg.solve(centred.T @ centred + ridge, centred.T @ code.values))
    optimizer = torch.optim.Adam([autoencoder.encoder, autoencoder.encoder_bias], lr=ENCODER_LR)
    generator = torch.Generator().manual_seed(seed)
    losses = []
    for step in range(N_ENCODER_STEPS):
        optimizer.param_groups[0]["lr"] = ENCODER_LR * (1 - step / N_ENCODER_STEPS)
        batch = torch.randint(len(x), (ENCODER_BATCH,), generator=generator)
        features = autoencoder.sparse(autoencoder.before(x[batch]))
        loss = (features - code.values[batch]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [float(np.mean(part)) for part in np.array_split(losses, 10)]
