"""LeagueLoop: the loop of a league's training. Learning players take turns, and meet in matches.

An iteration is the turn of one learning player: a rollout of its own environments, and an update. A round is
`round_turns` turns of each of them. When it ends, its matches are written to `matches.jsonl`, the win rates of the next
round follow from them, and every player is reviewed. All draws of a round read the same league, so that a resumed
training plays the same matches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from marlnb.algorithms.learner import Learner
from marlnb.envs.vector import VectorEnv
from marlnb.errors import CheckpointError, RunError
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.populations.league.draws import review
from marlnb.populations.league.matches import Match, check_competitive, from_text, to_text, turn_results
from marlnb.populations.league.payoff import PayoffTable
from marlnb.populations.league.players import Player
from marlnb.populations.league.roster import planned_league
from marlnb.populations.league.state import LeagueState
from marlnb.populations.training.league.changes import LeagueChanges
from marlnb.populations.training.league.files import LEAGUE, LeagueFiles, PlayerHistory
from marlnb.populations.training.league.player_experiment import algorithm_names, check_names, representatives
from marlnb.populations.training.league.player_weights import PlayerWeights
from marlnb.populations.training.league.players import LeaguePlayers
from marlnb.populations.training.league.recent_returns import RecentReturns
from marlnb.populations.training.learning_metrics import metrics_named
from marlnb.populations.training.other_processes.requests import requests_due
from marlnb.populations.training.other_processes.trainings import OtherTrainings
from marlnb.populations.training.snapshots import SnapshotStore
from marlnb.training.limits import check_length
from marlnb.training.loop import Advance
from marlnb.training.runs.run_folder import RunFolder


class LeagueLoop:
    """Trains the learning players of a league; has the interface of `marlnb.training.loop.Loop`.

    Args:
        experiment: with a league.
        env: the environments of the first player that learns; the others get their own.
        device: of the networks.
        folder: of the run.
    Raises:
        ConfigError: the environment has no sides that compete, a player has no opponent, or its algorithm does
            not fit. Or several players learn, and other processes take part in the environment.
    """

    def __init__(self, experiment: Experiment, env: VectorEnv, device: torch.device, folder: Path) -> None:
        assert experiment.league is not None
        self.experiment, self.config = experiment, experiment.league
        self._spec, learner = env.spec, self.config.learner
        league = planned_league(self.config, env.spec, experiment.frames, experiment.iteration_frames)
        check_names(experiment, env.spec, league.players.values())
        self._run = RunFolder(folder, experiment)
        self._files, snapshots = LeagueFiles(folder), SnapshotStore(folder / LEAGUE, env.spec)
        self._others = OtherTrainings(folder, learner, snapshots) if learner else None
        self._history = history = PlayerHistory(by_frames=bool(learner))
        self._players = LeaguePlayers(experiment, env, device, league.sides, snapshots, history)
        self._weights = PlayerWeights(self._players.by_id, snapshots, history)
        seed = experiment.seed
        self._changes = LeagueChanges(league, self.config, self._players, self._weights, self._files, history, seed)
        names = algorithm_names(experiment, self._trained.values(), league.sides, env.spec)
        check_length(experiment, env.spec, names, len(self._trained))
        self._round_matches: list[Match] = []  # in this round
        self._undecided_matches: list[Match] | None = []  # all matches, until one shows that the sides compete
        self._turn = 0  # of the round
        first = [player for player in league.players.values() if not player.is_snapshot]
        try:
            for player in first:
                self._changes.join(player)
        except BaseException:
            self.close()
            raise
        self._representatives = representatives(first, league.sides, env.spec)
        shown = representatives([player for player in first if player.learning], league.sides, env.spec)
        trackers = {group: self._players.by_id[learner or player.id].loop.episodes for group, player in shown.items()}
        self.episodes = RecentReturns(trackers)

    @property
    def league(self) -> LeagueState:
        """As it is now."""
        return self._changes.league

    @property
    def env(self) -> VectorEnv:
        """Of the first player that learns here."""
        players = self._players.by_id
        return players[self.config.learner or next(name for name in players if players[name].player.learning)].env

    @property
    def _trained(self) -> dict[str, Player]:
        """By id, the players that learn here."""
        return {player.id: player for player in self.league.learning if self.config.learner in ("", player.id)}

    @property
    def learners(self) -> dict[str, Learner]:
        """By group, the learner of the first player that acts for it."""
        return {name: self._players.by_id[player.id].learners[name] for name, player in self._representatives.items()}

    @property
    def policies(self) -> dict[str, Policy]:
        """By group, the policy of the first player that acts for it."""
        return {name: learner.policy for name, learner in self.learners.items()}

    @property
    def may_end(self) -> bool:
        return True

    def begin(self, iteration: int) -> None:
        """Begins new matches everywhere; at the beginning of a training run also the league."""
        if not self._changes.is_started:
            self._changes.begin()
        for player in self._trained:
            self._players.by_id[player].begin(iteration)

    def advance(self) -> Advance:
        """The turn of one player; at the end of a round also the review of all.

        Raises:
            DivergedError, EnvError: as of any training run.
            ConfigError: all sides always have equal returns, or the league's config made an invalid draw or decision.
            CheckpointError: a snapshot cannot be read or written.
        """
        learning = list(self._trained.values())
        player = learning[self._turn % len(learning)]
        learning_player = self._players.by_id[player.id]
        advance = learning_player.advance()
        self._players.frames[player.id] += self.experiment.iteration_frames
        matches = learning_player.env.take_finished()
        self._round_matches += matches
        turn = {player.id: {"round": self.league.round, **turn_results(matches, player.id)}}
        metrics = metrics_named(player.id, {group: advance.learning[group] for group in learning_player.learners})
        self._turn += 1
        if self._turn == len(learning) * self.config.round_turns:
            self._end_round()
        return replace(advance, learning=metrics, turn=turn)

    def state_dict(self) -> dict[str, Any]:
        """As of a Loop: `learners` are those of `self.learners`, so that a league's checkpoint opens like any other."""
        self._files.sync()
        players = {
            name: player.state_dict() if name in self._trained else player.learners_state()
            for name, player in self._players.by_id.items()
        }
        learners = {name: players[p.id]["learners"].pop(name) for name, p in self._representatives.items()}
        league = {
            "round": self.league.round,
            "turn": self._turn,
            "frames": dict(self._players.frames),
            "round_frames": dict(self.league.frames),
            "snapshot_frames": dict(self.league.snapshot_frames),
            "n_matches": self._files.n_matches,
            "n_events": self._files.n_events,
            "finished": to_text(self._round_matches),
            "competes": self._undecided_matches is None,
            "players": players,
            "payoff": self.league.payoff.state_dict() if self._others else None,
        }
        return {"learners": learners, "league": league}

    def load_state_dict(self, state: Mapping[str, Any], iteration: int) -> None:
        """Restores a saved state; the files are cut back to it. Training then continues bit for bit on a CPU.

        Raises:
            CheckpointError: the state belongs to another experiment, or a file of the league is missing or damaged.
        """
        try:
            saved = state["league"]
            self._files.cut(saved["n_matches"], saved["n_events"])
            self._restore_players(saved)
            for group, representative in self._representatives.items():
                saved["players"][representative.id]["learners"][group] = state["learners"][group]
            for name, player in self._players.by_id.items():
                player_state = saved["players"][name]
                if name in self._trained:
                    player.load_state_dict(player_state, iteration)
                else:
                    player.load_learners(player_state["learners"])
                    self._players.close_env(name)
        except (RunError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"the league cannot be resumed: {error}") from error

    def close(self) -> None:
        """Frees the environments of all players but the first, which belong to the caller."""
        for name in self._players.by_id:
            self._players.close_env(name)

    def _restore_players(self, saved: Mapping[str, Any]) -> None:
        """The players and the table of a checkpoint; `self._players` has those that are there from the beginning."""
        self._changes.is_started = True
        history = self._history
        history.replace(self._files.events())
        for player in history.known.values():
            if player.id in saved["players"] and player.id not in self._players.by_id:
                self._changes.join(player)
        self._players.frames.update(saved["frames"])
        matches = self._files.matches()
        self._changes.league = replace(
            self.league,
            players=history.playing,
            payoff=PayoffTable.from_state_dict(saved["payoff"], self.config.decay)
            if self._others
            else PayoffTable.from_matches(matches, decay=self.config.decay, resets=history.resets),
            frames=dict(saved["round_frames"]),
            snapshot_frames=dict(saved["snapshot_frames"]),
            round=int(saved["round"]),
        )
        self._turn = int(saved["turn"])
        self._round_matches = from_text(saved["finished"])
        if saved.get("competes", False):  # all matches together may rise and fall alike, as players learn
            self._undecided_matches = None
        self._check_competitive(matches)

    def _end_round(self) -> None:
        matches, self._round_matches, self._turn = self._round_matches, [], 0
        before = set(self._players.by_id)
        self._files.add_matches(matches)
        self._check_competitive(matches)
        league = self.league
        payoff = league.payoff.add(matches, resets=self._history.resets)
        league = replace(league, payoff=payoff, frames=self._players.frames_of(league.learning))
        self._changes.league = league
        for player in self._trained:
            for decision in review(self.config, league, player, self.experiment.seed):
                if not self._changes.carry_out(decision, player):
                    break  # as a reset, whose snapshot found no place
        for request in requests_due(self._files.folder, self.league.round):
            if outcome := self._changes.grant(request):
                self._run.log_event(f"league, end of round {self.league.round}: {outcome}")
        if self._others is not None:
            self._exchange(self._others)
        frames = self._players.frames_of(self.league.learning)
        self._changes.league = replace(self.league, frames=frames, round=league.round + 1)
        for name in [player for player in self._trained if player not in before]:
            self._players.by_id[name].begin(0)  # its first matches read the table of the round that begins

    def _exchange(self, others: OtherTrainings) -> None:
        """Writes the weights that the others shall meet from now on, and reads what the others did."""
        learner = self.league.players[self.config.learner]
        sha256 = self._weights.save(learner.id, learner.id, self._players.frames[learner.id])
        self._changes.log("published", replace(learner, checkpoint=sha256), "")
        received, payoff = others.read(self.league.round), self.league.payoff
        self._files.add_matches(list(received.matches))
        for event in received.events:
            self._files.add_event(event)
            self._history.add(event)
            payoff = payoff.forget(event.player) if event.event == "reset" else payoff
            if event.event == "published":
                self._players.frames[event.player] = event.frames
        players = self._history.playing
        payoff = payoff.add(received.matches, tuple(players), self._history.resets)
        self._changes.league = replace(self.league, players=players, payoff=payoff)

    def _check_competitive(self, matches: list[Match]) -> None:
        if self._undecided_matches is not None and not self.config.win_threshold:
            self._undecided_matches += [match for match in matches if any(match.returns)]
            remedy = "Train it without league=, or say who wins with league.win_threshold={side: return}"
            if check_competitive(self._undecided_matches, self._spec.name, remedy=remedy, at="league"):
                self._undecided_matches = None
