"""What a run can do with an environment that other processes connect to; ordinary environments need none of it."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from pathlib import Path

from marlnb.config import EnvConfig
from marlnb.envs.external.address_file import AddressFile, is_published
from marlnb.envs.external.addresses import endings
from marlnb.envs.external.options import ExternalOptions
from marlnb.envs.vector import VectorEnv
from marlnb.trust import loaded


class EnvInterrupted(Exception):
    """A training run was asked to stop while an evaluation or a recording played with other processes."""


class ServedEnv(VectorEnv):
    """A VectorEnv that waits for other processes."""

    @abstractmethod
    def publish(self, folder: Path) -> None:
        """Writes the address into a run's folder, so that other processes find this environment."""

    @abstractmethod
    def interrupt(self) -> None:
        """Makes a `step` that waits for another process return; safe to call from a signal handler."""

    @abstractmethod
    def cancel(self) -> None:
        """Makes this and every later `step` raise EnvInterrupted; safe to call from a signal handler."""


def evaluation_config(config: EnvConfig) -> EnvConfig:
    """The config of another environment than the training's: other processes connect to it at a separate address.

    Raises:
        TrustError: it is that of an opened run, and the user does not trust the code that it names.
    """
    config = loaded(config, "env")
    return config.for_evaluation() if isinstance(config, ExternalOptions) else config


def is_served(env: VectorEnv) -> bool:
    """Whether `env` waits for other processes that connect to it."""
    return _served(env) is not None


def publish(env: VectorEnv, folder: Path) -> None:
    """Publishes the address of `env` in `folder` if other processes connect to it."""
    if (served := _served(env)) is not None:
        served.publish(folder)


def publish_evaluation(env: VectorEnv, folder: Path) -> None:
    """As `publish`, in the first of `folder`, `folder-2`, ... that no other server is published in."""
    if (served := _served(env)) is not None:
        folders = (folder.with_name(f"{folder.name}{ending}") for ending in endings())
        served.publish(next(each for each in folders if not is_published(each / AddressFile.NAME)))


def interrupt(env: VectorEnv) -> None:
    """Makes a `step` of `env` return if it waits for another process; safe to call from a signal handler."""
    if (served := _served(env)) is not None:
        served.interrupt()


def _served(env: VectorEnv) -> ServedEnv | None:
    """The served environment, which may be wrapped: wrappers keep what they wrap in `env`."""
    inner: object = env
    while isinstance(inner, VectorEnv) and not isinstance(inner, ServedEnv):
        inner = getattr(inner, "env", None)
    return inner if isinstance(inner, ServedEnv) else None


class ServedEnvs:
    """The envs that a run plays in besides its iterations, where other processes take part: one stop for all."""

    def __init__(self) -> None:
        self._envs: tuple[weakref.ref[ServedEnv], ...] = ()
        self._is_cancelled = False

    def add(self, env: VectorEnv) -> None:
        """From `cancel` on, also an earlier one, every `step` of `env` raises EnvInterrupted, if it is served."""
        if (served := _served(env)) is not None:
            self._envs = (*(ref for ref in self._envs if ref() is not None), weakref.ref(served))
            if self._is_cancelled:
                served.cancel()

    def cancel(self) -> None:
        """Safe to call from a signal handler."""
        self._is_cancelled = True
        for ref in self._envs:
            if (served := ref()) is not None:
                served.cancel()
