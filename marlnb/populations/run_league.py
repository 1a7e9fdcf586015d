"""RunLeague: the league of a run folder, read from its files: players, snapshots, matches and win rates."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from marlnb.config import EnvConfig
from marlnb.envs.vector import VectorEnv
from marlnb.errors import CheckpointError, RunError, unknown
from marlnb.experiment import Experiment
from marlnb.league_config import LeagueConfig
from marlnb.models.policies.policy import Policy
from marlnb.populations.league.matches import Match, count_by_kind, read_matches
from marlnb.populations.league.payoff import PayoffTable
from marlnb.populations.league.player_log import PlayerEvent, read_events
from marlnb.populations.league.players import Player, Side
from marlnb.populations.league.roster import sides_of
from marlnb.populations.league.summary import LeagueSummary, rate_players, summarise
from marlnb.populations.ratings.player_ratings import PlayerRatings
from marlnb.populations.training.league.files import LEAGUE, PlayerHistory
from marlnb.populations.training.league.player_experiment import player_experiment, representatives
from marlnb.populations.training.other_processes.requests import (
    PlayerRequest,
    RequestAction,
    pending_requests,
    request_of_player,
)
from marlnb.populations.training.snapshots import SnapshotStore
from marlnb.specs import EnvSpec, GroupSpec
from marlnb.training.learners import build_learner
from marlnb.training.policies.agents import weights_sha256
from marlnb.training.runs.files import read_json
from marlnb.training.runs.metrics_rows import read_rows
from marlnb.training.runs.run import Origin, Run
from marlnb.training.runs.run_folder import METRICS, RunFolder, Which

REPORT = "report.json"


class RunLeague:
    """The league of a run, as its files are now; `run.league["main_0"].snapshots[3]` is one of its policies.

    Attributes:
        run: the run.
        folder: `<run>/league`.
    """

    def __init__(self, run: RunFolder) -> None:
        self.run = run if isinstance(run, Run) else Run(run.path, run.experiment)
        self.folder = run.path / LEAGUE

    @property
    def config(self) -> LeagueConfig:
        assert self.run.experiment.league is not None
        return self.run.experiment.league

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides of every match."""
        return sides_of(self.run.spec, self.config)

    @property
    def history(self) -> PlayerHistory:
        return PlayerHistory(self.events(), by_frames=bool(self.config.learner))

    @property
    def players(self) -> dict[str, LeaguePlayer]:
        """By id, the players that learn or have learned, with those that have retired; snapshots are below them."""
        known = self.history.known.values()
        return {player.id: LeaguePlayer(self, player) for player in known if not player.is_snapshot}

    def __getitem__(self, name: str) -> LeaguePlayer:
        """A player or a snapshot by its id, as "main_0" or "main_0@3". Raises RunError: there is none."""
        known = self.history.known
        if name not in known:
            raise RunError(unknown(f"player in the league of {self.run.shown_path}", name, tuple(known)))
        return LeaguePlayer(self, known[name])

    def events(self) -> list[PlayerEvent]:
        """What happened to players: who joined, was copied, reset, frozen or retired; oldest first."""
        return read_events(self.folder)

    def matches(self) -> list[Match]:
        """The matches of all complete rounds, in the order in which they ended."""
        return read_matches(self.folder)

    def payoff(self) -> PayoffTable:
        """How often each player beat each other one, as the league knows it at the end of the last round."""
        history = self.history
        return PayoffTable.from_matches(self.matches(), tuple(history.playing), self.config.decay, history.resets)

    def counts(self) -> dict[str, dict[str, int]]:
        """Matches of each learning player by kind."""
        return count_by_kind(self.matches())

    def ratings(self) -> PlayerRatings:
        """Elo of all players and snapshots, next to the cyclic share of the results, which Elo cannot show."""
        return rate_players(self.payoff())

    def frames(self) -> dict[str, int]:
        """By player, the frames that it has learned from, those before its resets included.

        Counted by the turns in the metrics. Where these are incomplete, as in a gallery, or belong to another training
        run, as with `league.learner`, it is the largest number in the record of events and matches.
        """
        turns = Counter(player for row in read_rows(self.run.path / METRICS) for player in row.get("turn", {}))
        frames = {player: n * self.run.experiment.iteration_frames for player, n in turns.items()}
        for event in self.events():
            player = event.parent if event.event == "snapshot" else event.player
            frames[player] = max(frames.get(player, 0), event.frames)
        for match in self.matches():
            for player, version in zip(match.players.values(), match.versions):
                frames[player] = max(frames.get(player, 0), version)
        return {player: frames.get(player, 0) for player in self.players}

    def freeze(self, player: str, reason: str = "") -> None:
        """Requests that a player stops learning at the end of this round; it continues to play.

        The training, wherever it runs, rejects it if the league could not continue; the run's log says what happened.

        Raises:
            RunError: there is no such player, or it does not learn.
        """
        self._request("freeze", player, reason)

    def retire(self, player: str, reason: str = "") -> None:
        """As `freeze`, but the player stops playing too; its snapshots stay."""
        self._request("retire", player, reason)

    def pending_requests(self) -> list[PlayerRequest]:
        """Requests that no training run has handled yet."""
        return list(pending_requests(self.folder).values())

    def summary(self) -> LeagueSummary:
        """The league at a glance: its players, matches by kind, win rates and ratings."""
        name = f"League {self.config.name} of {self.run.shown_path}"
        return summarise(name, self.history.events, self.matches(), self.payoff(), self.frames())

    def report(self) -> dict[str, Any] | None:
        """The last `marlnb.league_report` of this league, as plain JSON; None: there is none."""
        path = self.folder / REPORT
        return read_json(path) if path.is_file() else None

    def _request(self, action: RequestAction, player: str, reason: str) -> None:
        playing = self.history.playing
        valid = [name for name, known in playing.items() if known.learning]
        if action == "retire":
            valid = [name for name, known in playing.items() if not known.is_snapshot]
        if player not in valid:
            raise RunError(unknown(f"player to {action} in the league of {self.run.shown_path}", player, valid))
        request_of_player(self.folder, action, player, reason)

    def __repr__(self) -> str:
        return repr(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


class LeaguePlayer:
    """A player of a league or one of its snapshots; it is played, recorded and explained like a run.

    In games of several groups, groups of other sides act by the first player of that side, as `run` has it.

    Attributes:
        league: to which it belongs.
        player: its facts.
    """

    def __init__(self, league: RunLeague, player: Player) -> None:
        self.league, self.player = league, player

    @property
    def id(self) -> str:
        return self.player.id

    @property
    def snapshots(self) -> list[LeaguePlayer]:
        """Its snapshots, oldest first."""
        known = self.league.history.known.values()
        return [LeaguePlayer(self.league, other) for other in known if other.is_snapshot and other.parent == self.id]

    @property
    def matches(self) -> list[Match]:
        """Those in which it took part."""
        return [match for match in self.league.matches() if self.id in match.players.values()]

    @property
    def path(self) -> Path:
        """Folder of its recordings."""
        return self.league.folder / "players" / self.id

    @property
    def spec(self) -> EnvSpec:
        return self.league.run.spec

    @property
    def n_envs(self) -> int:
        return self.league.run.n_envs

    @property
    def experiment(self) -> Experiment:
        """What it learns with, without the league."""
        return player_experiment(self.league.run.experiment, self.spec, self._learner)

    def build_env(self, n_envs: int, *, device: str = "cpu", env: EnvConfig | None = None) -> VectorEnv:
        return self.league.run.build_env(n_envs, device=device, env=env)

    def policies(self, checkpoint: Which = "last", *, device: str = "cpu") -> dict[str, Policy]:
        """The policy of each group, ready to act; of a learning player with the weights of the run's last checkpoint.

        Raises:
            CheckpointError: its snapshot is missing or damaged, or the run has no checkpoint.
        """
        self._check(checkpoint)
        weights = self._weights()
        experiment = self.experiment
        others = set(self.spec.group_names) - set(weights)
        policies = self.league.run.policies(device=device) if others else {}
        for name, state in weights.items():
            policy = build_learner(experiment, self.spec, self.spec.group(name), device, in_league=True).policy
            try:
                policy.load_state_dict(state)
            except RuntimeError as error:
                raise CheckpointError(f"the weights of {self.id} do not fit its networks: {error}") from error
            policies[name] = policy.eval()
        return {name: policies[name] for name in self.spec.group_names}

    def origin(self, checkpoint: Which = "last") -> Origin:
        """Of a snapshot or frozen player, the iteration counts the player's own turns until then; else it is 0."""
        self._check(checkpoint)
        return Origin(self._iteration, self.player.checkpoint or weights_sha256(self.policies()))

    def policy_index(self, group: GroupSpec) -> list[int]:
        return self.league.run.policy_index(group)

    def __repr__(self) -> str:
        player = self.player
        kind = "snapshot" if player.is_snapshot else "learning" if player.learning else "frozen"
        after = f", after {player.born_at_frames:,} frames" if player.checkpoint else ""
        return f"<LeaguePlayer {player.id} of {self.league.run.shown_path}: {player.role}, {kind}{after}>"

    @property
    def _learner(self) -> Player:
        """Itself, or of a snapshot the player that it was taken of."""
        return self.league.history.known[self.player.parent] if self.player.is_snapshot else self.player

    def _weights(self) -> dict[str, dict[str, object]]:
        """By group, the weights of the groups that it plays."""
        if self.player.checkpoint is not None:
            store = SnapshotStore(self.league.folder, self.spec)
            return store.read(self.id, self.player.checkpoint)  # type: ignore[return-value]
        state = self.league.run.checkpoint().load()
        saved = state["league"]["players"]
        if self.id not in saved:
            raise CheckpointError(f"{self.id} joined after the last checkpoint of {self.league.run.shown_path}")
        learners = dict(saved[self.id]["learners"])
        first = representatives(self.league.history.known.values(), self.league.sides, self.spec)
        own = [name for name, player in first.items() if player.id == self.id]
        if lacking := [name for name in own if name not in state["learners"]]:
            raise CheckpointError(
                f"the last checkpoint of {self.league.run.shown_path} has no weights of "
                f"{', '.join(map(repr, lacking))}, which the run's spec names; it has those of: "
                f"{', '.join(state['learners']) or 'no group'}"
            )
        learners |= {name: state["learners"][name] for name in own}
        return {name: learner["policy"] for name, learner in learners.items() if "policy" in learner}

    def _check(self, checkpoint: Which) -> None:
        if str(checkpoint) not in ("last", "best", str(self._iteration)):
            raise CheckpointError(f"no checkpoint {checkpoint!r}: {self.id} has one set of weights; valid: last")

    @property
    def _iteration(self) -> int:
        return self.player.born_at_frames // self.league.run.experiment.iteration_frames
