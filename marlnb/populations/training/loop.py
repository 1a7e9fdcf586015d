"""LeagueLoop: the loop of a league's training. Learning players take turns, and meet in matches.

An iteration is the turn of one learning player: a rollout of its own environments, and an update. A round is
`round_turns` turns of each of them. When it ends, its matches are written to `matches.jsonl`, the win rates of the next
round follow from them, and every player is reviewed. All draws of a round read the same league, so that a resumed
training plays the same matches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from marlnb.algorithms.learner import Learner
from marlnb.envs.external.interface import is_served
from marlnb.envs.regroup import build_env
from marlnb.envs.vector import VectorEnv
from marlnb.errors import CheckpointError, ConfigError, RunError
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.populations.league.draws import draw_match, review
from marlnb.populations.league.matches import Match, check_competitive, from_text, to_text, turn_results
from marlnb.populations.league.payoff import PayoffTable
from marlnb.populations.league.player_log import PlayerEvent, What
from marlnb.populations.league.players import Player, snapshot_id
from marlnb.populations.league.roster import planned_league, player_sides
from marlnb.populations.league.state import Decision
from marlnb.populations.training.league_files import LEAGUE, LeagueFiles, PlayerHistory
from marlnb.populations.training.learning_player import LearningPlayer
from marlnb.populations.training.match_env import MatchEnv, MatchStart
from marlnb.populations.training.opponent_policies import OpponentPolicies
from marlnb.populations.training.other_processes.requests import PlayerRequest, refused, requests_due
from marlnb.populations.training.other_processes.trainings import OtherTrainings
from marlnb.populations.training.player_experiment import (
    algorithm_names,
    check_names,
    player_experiment,
    representatives,
)
from marlnb.populations.training.player_weights import PlayerWeights
from marlnb.populations.training.recent_returns import RecentReturns
from marlnb.populations.training.snapshots import SnapshotStore
from marlnb.training.learners import check_length
from marlnb.training.loop import Advance
from marlnb.training.runs.run_folder import RunFolder


class LeagueLoop:
    """Trains the learning players of a league; has the interface of `marlnb.training.loop.Loop`.

    Args:
        experiment: with a league.
        env: the environments of the first player; the others get their own.
        device: of the networks.
        folder: of the run.
    Raises:
        ConfigError: the environment has no sides that compete, a player has no opponent, or its algorithm does
            not fit. Or several players learn, and other processes take part in the environment.
    """

    def __init__(self, experiment: Experiment, env: VectorEnv, device: torch.device, folder: Path) -> None:
        assert experiment.league is not None
        self.experiment, self.config = experiment, experiment.league
        self._first_env, self._spec, self._device = env, env.spec, device
        learner = self.config.learner
        self.league = planned_league(self.config, env.spec, experiment.frames, experiment.iteration_frames)
        check_names(experiment, env.spec, self.league.players.values())
        names = algorithm_names(experiment, self._trained.values(), self.league.sides, env.spec)
        check_length(experiment, env.spec, names, len(self._trained))
        self._run = RunFolder(folder, experiment)
        self._files, self._snapshots = LeagueFiles(folder), SnapshotStore(folder / LEAGUE, env.spec)
        self._others = OtherTrainings(folder, learner, self._snapshots) if learner else None
        self._history = PlayerHistory(by_frames=bool(learner))
        self._parts: dict[str, LearningPlayer] = {}
        self._weights = PlayerWeights(self._parts, self._snapshots, self._history)
        self._opponents = OpponentPolicies(experiment, env.spec, self._snapshots, self._history, self._parts)
        self._frames: dict[str, int] = {}
        self._finished: list[Match] = []  # in this round
        self._unclear: list[Match] | None = []  # all matches, until one shows that the sides compete
        self._turn = 0  # of the round
        self._started = False
        first = [player for player in self.league.players.values() if not player.is_snapshot]
        for player in first:
            self._join(player)
        self._represent = representatives(first, self.league.sides, env.spec)
        shown = [learner or player.id for player in self._represent.values() if player.learning]
        self.episodes = RecentReturns({name: self._parts[p].loop.episodes for name, p in zip(self._represent, shown)})

    @property
    def env(self) -> VectorEnv:
        """Of the first player that learns here."""
        return self._parts[self.config.learner or next(iter(self._parts))].env

    @property
    def _trained(self) -> dict[str, Player]:
        """By id, the players that learn here."""
        return {player.id: player for player in self.league.learning if self.config.learner in ("", player.id)}

    @property
    def learners(self) -> dict[str, Learner]:
        """By group, the learner of the first player that acts for it."""
        return {name: self._parts[player.id].learners[name] for name, player in self._represent.items()}

    @property
    def policies(self) -> dict[str, Policy]:
        """By group, the policy of the first player that acts for it."""
        return {name: learner.policy for name, learner in self.learners.items()}

    @property
    def may_end(self) -> bool:
        return True

    def begin(self, iteration: int) -> None:
        """Begins new matches everywhere; at the beginning of a training also the league."""
        if not self._started:
            self._begin_league()
        for player in self._trained:
            self._parts[player].begin(iteration)

    def advance(self) -> Advance:
        """The turn of one player; at the end of a round also the review of all.

        Raises:
            DivergedError, EnvError: as of any training.
            ConfigError: all sides always have equal returns, or the league's config made an invalid draw or decision.
            CheckpointError: a snapshot cannot be read or written.
        """
        learning = list(self._trained.values())
        player = learning[self._turn % len(learning)]
        part = self._parts[player.id]
        advance = part.advance()
        self._frames[player.id] += self.experiment.iteration_frames
        matches = part.env.take_finished()
        self._finished += matches
        turn = {player.id: {"round": self.league.round, **turn_results(matches, player.id)}}
        learning_metrics = {
            player.id if len(part.learners) == 1 else f"{player.id}/{group}": advance.learning[group]
            for group in part.learners
        }
        self._turn += 1
        if self._turn == len(learning) * self.config.round_turns:
            self._end_round()
        return replace(advance, learning=learning_metrics, turn=turn)

    def state_dict(self) -> dict[str, Any]:
        """As of a Loop: `learners` are those of `self.learners`, so that a league's checkpoint opens like any other."""
        self._files.sync()
        players = {name: self._state_of(part) for name, part in self._parts.items()}
        learners = {name: players[p.id]["learners"].pop(name) for name, p in self._represent.items()}
        league = {
            "round": self.league.round,
            "turn": self._turn,
            "frames": dict(self._frames),
            "round_frames": dict(self.league.frames),
            "snapshot_frames": dict(self.league.snapshot_frames),
            "n_matches": self._files.n_matches,
            "n_events": self._files.n_events,
            "finished": to_text(self._finished),
            "competes": self._unclear is None,
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
            for group, player in self._represent.items():
                saved["players"][player.id]["learners"][group] = state["learners"][group]
            for name, part in self._parts.items():
                part_state = saved["players"][name]
                if name in self._trained:
                    part.load_state_dict(part_state, iteration)
                else:
                    part.load_learners(part_state["learners"])
                    self._close_env(part)
        except (RunError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"the league cannot be resumed: {error}") from error

    def close(self) -> None:
        """Frees the environments of all players but the first, which belong to the caller."""
        for part in self._parts.values():
            self._close_env(part)

    def _begin_league(self) -> None:
        self._files.cut(0, 0)
        players = dict(self.league.players)
        sides = player_sides(self.league.sides, self.league.is_symmetric)
        new_players = {new.id: new for new in self.config.roster(sides)}
        for name, player in players.items():
            if player.is_snapshot:
                players[name] = player = self._saved(player)
            elif player.parent:
                self._weights.inherit(player)
            self._log("snapshot" if player.is_snapshot else "added", player, "the league begins")
            if not player.is_snapshot and not player.learning:
                whose = self._weights.copy_from_run(new_players[name])
                players[name] = self._frozen(player, f"weights of {whose}")
        self.league = replace(self.league, players=players)
        self._started = True

    def _restore_players(self, saved: Mapping[str, Any]) -> None:
        """The players and the table of a checkpoint; `self._parts` has those that are there from the beginning."""
        self._started = True
        history = self._history
        history.replace(self._files.events())
        for player in history.known.values():
            if player.id in saved["players"] and player.id not in self._parts:
                self._join(player)
        self._frames.update(saved["frames"])
        matches = self._files.matches()
        self.league = replace(
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
        self._finished = from_text(saved["finished"])
        if saved.get("competes", False):  # all matches together may rise and fall alike, as players learn
            self._unclear = None
        self._check_competitive(matches)

    def _end_round(self) -> None:
        matches, self._finished, self._turn = self._finished, [], 0
        before = set(self._parts)
        self._files.add_matches(matches)
        self._check_competitive(matches)
        league = self.league
        payoff, frames = league.payoff.add(matches, resets=self._history.resets), self._frames_of(league.players)
        self.league = league = replace(league, payoff=payoff, frames=frames)
        for player in self._trained:
            for decision in review(self.config, league, player, self.experiment.seed):
                self._carry_out(decision, league.players[decision.player or player])
        for request in requests_due(self._files.folder, self.league.round):
            self._grant(request)
        if self._others is not None:
            self._exchange(self._others)
        self.league = replace(self.league, frames=self._frames_of(self.league.players), round=league.round + 1)
        for name in [player for player in self._trained if player not in before]:
            self._parts[name].begin(0)  # its first matches read the table of the round that begins

    def _exchange(self, others: OtherTrainings) -> None:
        """Writes the weights that the others shall meet from now on, and reads what the others did."""
        learner = self.league.players[self.config.learner]
        sha256 = self._weights.save(learner.id, learner.id, self._frames[learner.id])
        self._log("published", replace(learner, checkpoint=sha256), "")
        received, payoff = others.read(self.league.round), self.league.payoff
        self._files.add_matches(list(received.matches))
        for event in received.events:
            self._files.add_event(event)
            self._history.add(event)
            payoff = payoff.forget(event.player) if event.event == "reset" else payoff
            if event.event == "published":
                self._frames[event.player] = event.frames
        players = self._history.playing
        payoff = payoff.add(received.matches, tuple(players), self._history.resets)
        self.league = replace(self.league, players=players, payoff=payoff)

    def _grant(self, request: PlayerRequest) -> None:
        """Freezes or retires a player as a user wants it, unless the league could not continue without it."""
        player = self.league.players.get(request.player)
        if player is None or (request.action == "freeze" and not player.learning):
            return
        outcome = f"{request.action} {player.id}, as requested{f' ({request.reason})' if request.reason else ''}"
        if refusal := refused(request, self.config, self.league):
            outcome = f"a request to {request.action} {player.id} was refused: {refusal}"
        else:
            self._stop_learning(player, request.reason, retires=request.action == "retire")
        self._run.log_event(f"league, end of round {self.league.round}: {outcome}")

    def _carry_out(self, decision: Decision, player: Player) -> None:
        """Changes the league as decided. Snapshots are written before anything else happens to their player."""
        reason = decision.reason
        if decision.action in ("snapshot", "reset") and not player.learning:
            raise ConfigError(
                f"league {self.config.name!r}: a decision to {decision.action} {player.id!r}, which does not learn"
            )
        has_place = len(self.league.players) < self.config.max_players
        if decision.action == "snapshot" and has_place:
            self._snapshot(player, reason)
        elif decision.action == "reset":
            self._reset(player, reason)
        elif decision.action == "add" and has_place:
            assert decision.new is not None
            new = decision.new
            added = Player(new.id, new.role, new.side, parent=new.parent)
            self._join(added)
            if new.parent:
                self._weights.inherit(added)
            self._log("added", added, reason)
            self.league = replace(self.league, players={**self.league.players, new.id: added})
            if new.with_snapshot:
                self._snapshot(added, reason)
        elif decision.action in ("freeze", "retire"):
            self._stop_learning(player, reason, retires=decision.action == "retire")

    def _snapshot(self, player: Player, reason: str) -> None:
        name = snapshot_id(player.id, self._history.n_snapshots(player.id))
        frames = self._frames[player.id]
        snapshot = self._saved(Player(name, player.role, player.side, False, player.id, frames))
        self._log("snapshot", snapshot, reason)
        taken = {**self.league.snapshot_frames, player.id: frames}
        self.league = replace(self.league, players={**self.league.players, name: snapshot}, snapshot_frames=taken)

    def _reset(self, player: Player, reason: str) -> None:
        self._log("reset", player, reason)
        self.league = replace(self.league, payoff=self.league.payoff.forget(player.id))
        n_resets = self._history.n_resets(player.id)
        self._parts[player.id].restart(player_experiment(self.experiment, self._spec, player, n_resets))

    def _stop_learning(self, player: Player, reason: str, *, retires: bool) -> None:
        players = dict(self.league.players)
        if player.learning:
            if len(self.league.learning) == 1:
                raise ConfigError(
                    f"league {self.config.name!r} would {'retire' if retires else 'freeze'} {player.id!r} ({reason}), "
                    "the last player that learns; end the training instead, as with frames= or the file STOP"
                )
            player = self._frozen(player, reason)
        players[player.id] = player
        if retires:
            self._log("retired", player, reason)
            del players[player.id]
        self.league = replace(self.league, players=players)

    def _frozen(self, player: Player, reason: str) -> Player:
        """A player with its weights saved, which learns no longer and needs no environments."""
        frames = self._frames[player.id]
        sha256 = self._weights.save(player.id, player.id, frames)
        player = replace(player, learning=False, checkpoint=sha256, born_at_frames=frames)
        self._log("frozen", player, reason)
        self._close_env(self._parts[player.id])
        return player

    def _close_env(self, part: LearningPlayer) -> None:
        """Frees a player's environments, unless they are those of the caller."""
        if part.env.env is not self._first_env:
            part.env.close()

    def _saved(self, snapshot: Player) -> Player:
        """A snapshot with its checkpoint: its parent's weights as they are now."""
        sha256 = self._weights.save(snapshot.parent, snapshot.id, snapshot.born_at_frames)
        return replace(snapshot, checkpoint=sha256)

    def _join(self, player: Player) -> None:
        """A learning player gets environments and learners."""
        experiment = player_experiment(self.experiment, self._spec, player, self._history.n_resets(player.id))
        is_shared = not self._parts or not player.learning or bool(self.config.learner)  # at most one player steps it
        env = self._first_env if is_shared else self._another_env(player, experiment)
        try:
            rules = self.config.win_threshold, self.config.win_margin
            matches = MatchEnv(env, player.id, self.league.sides, partial(self._draw, player.id), *rules)
            self._parts[player.id] = LearningPlayer(player, experiment, matches, self._device, self._opponents.find)
        except BaseException:
            if not is_shared:
                env.close()
            raise
        self._frames.setdefault(player.id, 0)

    def _another_env(self, player: Player, experiment: Experiment) -> VectorEnv:
        if is_served(self._first_env):
            raise ConfigError(
                f"league {self.config.name!r}: {player.id!r} needs envs of its own, but simulators connect to "
                f"{self._spec.name} at one address; valid: leagues in which one player learns, such as self_play in a "
                "game whose players form one group, or league.learner, which trains one player of several",
                at="league",
            )
        return build_env(experiment, experiment.n_envs, device=experiment.device)

    def _draw(self, player: str, number: int) -> MatchStart:
        pairing = draw_match(self.config, self.league, player, number, self.experiment.seed)
        versions = tuple(
            self._frames.get(name, self._history.known[name].born_at_frames) for name in pairing.players.values()
        )
        return MatchStart(number, pairing, versions, self.league.round)

    def _log(self, what: What, player: Player, reason: str) -> None:
        event = PlayerEvent(
            event=what,
            player=player.id,
            round=self.league.round if self._started else -1,
            frames=self._frames.get(player.id, player.born_at_frames),
            role=player.role,
            side=player.side,
            parent=player.parent,
            checkpoint=player.checkpoint,
            reason=reason,
        )
        self._files.add_event(event)
        self._history.add(event)

    def _check_competitive(self, matches: list[Match]) -> None:
        if self._unclear is not None and not self.config.win_threshold:
            self._unclear += [match for match in matches if any(match.returns)]
            if check_competitive(self._unclear, self._spec.name):
                self._unclear = None

    def _frames_of(self, players: Mapping[str, Player]) -> dict[str, int]:
        return {name: self._frames[name] for name, player in players.items() if player.learning}

    def _state_of(self, part: LearningPlayer) -> dict[str, Any]:
        if part.player.id in self._trained:
            return part.state_dict()
        return {"learners": {name: learner.state_dict() for name, learner in part.learners.items()}}
