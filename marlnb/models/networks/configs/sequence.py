"""Options of a sequence of models; `marlnb.models.networks.sequence` has the network."""

from __future__ import annotations

from dataclasses import dataclass

from marlnb.config import MODELS, ModelConfig, option
from marlnb.errors import ConfigError
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.network import NetworkConfig
from marlnb.models.networks.configs.recurrent import GRUConfig


@MODELS.register("sequence")
@dataclass(frozen=True)
class SequenceConfig(NetworkConfig):
    """Models in order, such as [cnn,gru]: each reads the output of the one before."""

    models: tuple[ModelConfig, ...] = option(
        (MLPConfig(hidden=(64,)), GRUConfig(hidden=())), help="the models: names, or {name: gru, recurrent_size: 32}"
    )
    widths: tuple[int, ...] = option(
        (64,), help="outputs of each model but the last; one value for all, or one each", unit="units", ge=1, le=65_536
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        gaps = len(self.models) - 1
        if gaps < 0:
            raise ConfigError(f"model {self.name!r}: models needs at least one; got none")
        if len(self.widths) not in (1, gaps):
            raise ConfigError(
                f"model {self.name!r}: widths has one value, or one for each of the {gaps} models before the last; "
                f"got {self.widths}"
            )
        for k, model in enumerate(self.models):
            for option_name in ("share_parameters", "agent_id", "precision"):
                if getattr(model, option_name, None) not in (None, getattr(type(model), option_name, None)):
                    raise ConfigError(
                        f"model {self.name!r}: models[{k}] has {option_name}={getattr(model, option_name)}; "
                        f"set {option_name} on the sequence, for all of its models"
                    )

    @property
    def recurrent(self) -> bool:
        return any(model.recurrent for model in self.models)
