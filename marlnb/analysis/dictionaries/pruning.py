"""fewest_features: a dictionary of no more features than its activations need.

A dictionary with features to spare gives one to what often coincides: a concept and another that goes along with it
share a feature, and neither of their own directions comes out (absorption: Chanin et al. 2024, arXiv:2409.14507). Such
features can be told from real ones by leaving them out: the others say the same. So features are coded with all of them
at once, directions fitted to the codes by least squares (Engan et al. 1999), what can be left out is left out, again
and again; at the end an encoder is trained to find the codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from marlnb.analysis.data.activation_stream import ActivationStream
from marlnb.analysis.dictionaries.dictionary import Dictionary
from marlnb.analysis.dictionaries.evaluation import evaluate_dictionary
from marlnb.errors import AnalysisError
from marlnb.models.networks.sparse_autoencoder import SparseAutoencoder
from marlnb.training.collect.threads import torch_threads

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

LEFT_OUT_AT_ONCE, SURELY_SPARE, APART = 3, 0.02, 0.3
FITS_BETWEEN, FITS_AT_END = 4, 10
CODING_STEPS, UNSHRINKING_STEPS = 25, 15
EXAMPLES_A_FEATURE = 400
PULL = 1e-3
ON = 1e-3
ENCODER_STEPS, ENCODER_BATCH, ENCODER_LR = 1500, 256, 5e-3


@dataclass(frozen=True)
class _Code:
    """directions `[feature, unit]`, of length 1; bias `[unit]`, None from rest; codes with the penalty's shrinkage and
    without it `[example, feature]`."""

    directions: Tensor
    bias: Tensor | None
    shrunk: Tensor
    values: Tensor

    def without(self, features: list[int]) -> _Code:
        keep = torch.ones(len(self.directions), dtype=torch.bool)
        keep[features] = False
        return _Code(self.directions[keep], self.bias, self.shrunk[:, keep], self.values[:, keep])

    def above(self, x: Tensor) -> Tensor:
        """What is there to be coded of activations `[example, unit]`."""
        return x if self.bias is None else x - self.bias


def fewest_features(
    dictionary: Dictionary,
    recording: Recording,
    *,
    l1: float = 0.5,
    missed: float = 0.2,
    rows: int = 4000,
    seed: int = 0,
) -> Dictionary:
    """Leaves out, one after the other, the features that the others can stand in for, and fits those that stay anew.

    Args:
        l1: penalty of the codes, in the units of `train_dictionary`.
        missed: a feature is left out if less than this share of what it writes (its sum of squares) is then missing.
        rows: examples that codes are made for, at most.
        seed: that of the dictionary's training, so that the same episodes are held out.
    Returns:
        A dictionary of kind standard with at most as many features, at least one, of the same units and from rest if
        that one was.
    Raises:
        AnalysisError: none of its features ever fires, or the site's units cannot be read as the dictionary's were.
    """
    if not (dictionary.density > 0).any():
        raise AnalysisError(f"none of the {dictionary.n_features} features of {dictionary.site} ever fires")
    units = dictionary.units
    stream = ActivationStream(recording, dictionary.site, dictionary.agents, seed=seed, units=units or None)
    old = dictionary.autoencoder.narrowed(units) if units else dictionary.autoencoder
    with torch_threads(1), torch.no_grad():
        x = _examples(stream, old, rows, np.random.default_rng(seed))
        penalty = l1 * stream.n_units**0.5 / 2  # of half a squared error, not of its mean over units
        alive = torch.from_numpy(dictionary.density > 0)
        nothing = torch.zeros(len(x), int(alive.sum()))
        bias = None if dictionary.from_rest else x.mean(0)
        code = _prune(x, _Code(old.decoder[alive], bias, nothing, nothing), penalty, missed)
    autoencoder = SparseAutoencoder(stream.n_units, len(code.directions), "standard", 0, seed=seed)
    autoencoder.mean, autoencoder.scale = old.mean.clone(), old.scale.clone()
    with torch_threads(1):
        losses = _train_encoder(autoencoder, x, code, seed)
    return evaluate_dictionary(autoencoder, stream, site=dictionary.site, losses=losses, from_rest=dictionary.from_rest)


def _examples(stream: ActivationStream, autoencoder: SparseAutoencoder, rows: int, rng: np.random.Generator) -> Tensor:
    """`[example, unit]`, normalised, drawn evenly from the training episodes."""
    n = max(1, rows // len(stream.agents))
    index = stream.train if len(stream.train) <= n else np.sort(rng.choice(stream.train, n, replace=False))
    parts = [values[torch.from_numpy(acting)] for _, values, acting in stream.blocks(index)]
    return autoencoder.normalised(torch.cat(parts))


def _prune(x: Tensor, code: _Code, penalty: float, missed: float) -> _Code:
    while True:
        code = _fit(x, code, penalty, FITS_BETWEEN)
        spare = _spare(x, code, penalty, missed)
        if not spare:
            return _fit(x, code, penalty, FITS_AT_END)
        code = code.without(spare)


def _fit(x: Tensor, code: _Code, penalty: float, times: int) -> _Code:
    """Codes for the directions, then directions for the codes; a direction's length goes to its codes."""
    for _ in range(times):
        shrunk, values = _encode(code.above(x), code.directions, penalty, code.shrunk)
        always = () if code.bias is None else (torch.ones(len(x), 1),)
        seen = torch.cat((values, *always), 1).double()
        old = torch.cat((code.directions, *(() if code.bias is None else (code.bias[None],)))).double()
        products = seen.T @ seen
        pull = PULL * products.diagonal() + 1e-9
        right = seen.T @ x.double() + pull[:, None] * old
        rows = torch.linalg.solve(products + pull.diag(), right).float()
        directions, bias = (rows, None) if code.bias is None else (rows[:-1], rows[-1])
        size = directions.norm(dim=1).clamp_min(1e-12)
        code = _Code(directions / size[:, None], bias, shrunk * size, values * size)
    return code


def _encode(
    x: Tensor,
    directions: Tensor,
    penalty: float,
    start: Tensor,
    *,
    coding: int = CODING_STEPS,
    unshrinking: int = UNSHRINKING_STEPS,
) -> tuple[Tensor, Tensor]:
    """Codes that are not negative, under the penalty; and of the same features without it.

    Source: Beck and Teboulle 2009 (FISTA).
    """
    gram, heard = directions @ directions.T, x @ directions.T
    step = 1 / torch.linalg.eigvalsh(gram)[-1]
    shrunk = _descend(start, gram, heard - penalty, step, coding, None)
    return shrunk, _descend(shrunk, gram, heard, step, unshrinking, shrunk > ON)


def _descend(start: Tensor, gram: Tensor, heard: Tensor, step: Tensor, times: int, allowed: Tensor | None) -> Tensor:
    at, ahead, momentum = start, start, 1.0
    for _ in range(times):
        new = (ahead - step * (ahead @ gram - heard)).relu_()
        if allowed is not None:
            new *= allowed
        later = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        at, ahead, momentum = new, new + (momentum - 1) / later * (new - at), later
    return at


def _spare(x: Tensor, code: _Code, penalty: float, missed: float) -> list[int]:
    """Features to leave out now: those that are missed least, few at a time and none that resembles another of them."""
    if len(code.directions) == 1:
        return []
    share = _missed(x, code, penalty)
    alike = (code.directions @ code.directions.T).abs()
    chosen: list[int] = []
    for feature in share.argsort()[: 2 * LEFT_OUT_AT_ONCE].tolist():
        limit = SURELY_SPARE if chosen else missed
        if share[feature] < limit and all(alike[feature, other] < APART for other in chosen):
            chosen.append(feature)
    return chosen[: min(LEFT_OUT_AT_ONCE, len(share) - 1)]


def _missed(x: Tensor, code: _Code, penalty: float) -> Tensor:
    """By feature, the squared error that leaving it out adds, over the sum of squares of what it writes."""
    share = torch.zeros(len(code.directions))
    error = (code.above(x) - code.values @ code.directions).square().sum(1)
    for feature in range(len(share)):
        on = (code.values[:, feature] > ON).nonzero()[:EXAMPLES_A_FEATURE, 0]
        if len(on) < 10:  # too rare to have a direction of its own
            continue
        rest = code.without([feature])
        part = code.above(x[on])
        values = _encode(part, rest.directions, penalty, rest.shrunk[on], coding=40, unshrinking=20)[1]
        added = (part - values @ rest.directions).square().sum(1) - error[on]
        share[feature] = added.sum() / code.values[on, feature].square().sum()
    return share


def _train_encoder(autoencoder: SparseAutoencoder, x: Tensor, code: _Code, seed: int) -> list[float]:
    """Gives the autoencoder the code's directions, and an encoder that finds its values; the mean losses by tenths."""
    with torch.no_grad():
        autoencoder.decoder.copy_(code.directions)
        autoencoder.decoder_bias.copy_(torch.zeros_like(x[0]) if code.bias is None else code.bias)
        centred = code.above(x)
        ridge = 1e-3 * len(x) * torch.eye(autoencoder.n_units)  # units that are never on leave the rest undecided
        autoencoder.encoder.copy_(torch.linalg.solve(centred.T @ centred + ridge, centred.T @ code.values))
    learnt = [autoencoder.encoder, autoencoder.encoder_bias]
    optimizer = torch.optim.Adam(learnt, lr=ENCODER_LR)
    generator = torch.Generator().manual_seed(seed)
    losses = []
    for step in range(ENCODER_STEPS):
        optimizer.param_groups[0]["lr"] = ENCODER_LR * (1 - step / ENCODER_STEPS)
        drawn = torch.randint(len(x), (ENCODER_BATCH,), generator=generator)
        loss = (autoencoder.sparse(autoencoder.before(x[drawn])) - code.values[drawn]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [float(np.mean(part)) for part in np.array_split(losses, 10)]
