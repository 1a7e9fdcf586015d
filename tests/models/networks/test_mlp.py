from __future__ import annotations

import pytest
import torch

from marlnb.config import ModelConfig
from marlnb.errors import ConfigError
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig, LSTMConfig
from marlnb.specs import InputSpec


@pytest.mark.parametrize("kind", [MLPConfig, GRUConfig, LSTMConfig])
def test_several_axes_are_read_as_one_vector_or_refused(kind: type[ModelConfig]) -> None:
    several, flat = InputSpec(((4, 3), (2,), ())), InputSpec(((4,), ()))
    network = kind().build(3, several, 2)
    assert network(torch.randn(5, 3, 15))[0].shape == (5, 3, 2)
    strict = kind(flatten=False)  # type: ignore[call-arg]
    assert strict.build(3, flat, 2).in_features == 5
    with pytest.raises(ConfigError, match=r"flatten=false.*\(4, 3\).*attention.*cnn.*deep_sets"):
        strict.build(3, several, 2)
