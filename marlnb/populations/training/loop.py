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

from marlnb.algorithms.learner import Learner, weights_of
from marlnb.envs.regroup import build_env
from marlnb.envs.vector import VectorEnv
from marlnb.errors import CheckpointError, ConfigError, RunError
from marlnb.experiment import Experiment
from marlnb.models.policies.policy import Policy
from marlnb.populations.league.draws import draw_match, review
from marlnb.populations.league.matches import Match, check_competitive, from_row, to_row, turn_results
from marlnb.populations.league.payoff import PayoffTable
from marlnb.populations.league.player_log import PlayerEvent, What
from marlnb.populations.league.players import NewPlayer, Player, snapshot_id
from marlnb.populations.league.roster import check_draws, check_league, player_sides
from marlnb.populations.league.state import Decision, LeagueState
from marlnb.populations.training.league_files import LEAGUE, LeagueFiles, PlayerHistory
from marlnb.populations.training.learning_player import LearningPlayer
from marlnb.populations.training.match_env import MatchEnv, MatchStart
from marlnb.populations.training.opponent_policies import OpponentPolicies
from marlnb.populations.training.player_experiment import check_names, player_experiment, representatives
from marlnb.populations.training.recent_returns import RecentReturns
from marlnb.populations.training.requests import PlayerRequest, requests_due
from marlnb.populations.training.snapshots import SnapshotStore
from marlnb.training.loop import Advance
from marlnb.training.runs.run import opened_run
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
            not fit.
    """

    def __init__(self, experiment: Experiment, env: VectorEnv, device: torch.device, folder: Path) -> None:
        assert experiment.league is not None
        self.experiment, self.config = experiment, experiment.league
        self._first_env, self._spec, self._device = env, env.spec, device
        planned = max(1, experiment.frames // max(1, len(check_league(self.config, env.spec).learning)))
        self.league: LeagueState = check_league(self.config, env.spec, planned)
        check_names(experiment, env.spec, self.league.players.values())
        self._run = RunFolder(folder, experiment)
        self._files, self._snapshots = LeagueFiles(folder), SnapshotStore(folder / LEAGUE, env.spec)
        self._history = PlayerHistory()
        self._parts: dict[str, LearningPlayer] = {}
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
        learning = {name: player for name, player in self._represent.items() if player.learning}
        self.episodes = RecentReturns({name: self._parts[p.id].loop.episodes for name, p in learning.items()})

    @property
    def env(self) -> VectorEnv:
        """The environments of the first player."""
        return next(iter(self._parts.values())).env

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
        for player in self.league.learning:
            self._parts[player.id].begin(iteration)

    def advance(self) -> Advance:
        """The turn of one player; at the end of a round also the review of all.

        Raises:
            DivergedError, EnvError: as of any training.
            ConfigError: all sides always have equal returns, or the league's config made an invalid draw or decision.
            CheckpointError: a snapshot cannot be read or written.
        """
        learning = self.league.learning
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
            "finished": [to_row(match) for match in self._finished],
            "players": players,
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
                if self._history.known[name].learning:
                    part.load_state_dict(part_state, iteration)
                else:
                    part.load_learners(part_state["learners"])
                    part.env.close()
        except (RunError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"the league cannot be resumed: {error}") from error

    def close(self) -> None:
        """Frees the environments of all players but the first, which belong to the caller."""
        for part in list(self._parts.values())[1:]:
            part.env.close()

    def _begin_league(self) -> None:
        self._files.cut(0, 0)
        players = dict(self.league.players)
        sides = player_sides(self.league.sides, self.league.is_symmetric)
        new_players = {new.id: new for new in self.config.roster(sides)}
        for name, player in players.items():
            if player.is_snapshot:
                players[name] = player = self._saved(player)
            elif player.parent:
                self._inherit(player)
            self._log("snapshot" if player.is_snapshot else "added", player, "the league begins")
            if not player.is_snapshot and not player.learning:
                players[name] = self._import(player, new_players[name])
        self.league = replace(self.league, players=players)
        self._started = True

    def _import(self, player: Player, new: NewPlayer) -> Player:
        """A player of another run, with its weights as they are there now."""
        source = opened_run(new.run)
        policies = (source.league[new.run_player] if new.run_player else source).policies()
        whose = f"{new.run_player or 'the policies'} of {source.path}"
        self._parts[player.id].load_weights({name: weights_of(policy) for name, policy in policies.items()}, whose)
        return self._frozen(player, f"weights of {whose}")

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
            payoff=PayoffTable.from_matches(matches, decay=self.config.decay, resets=history.last_resets),
            frames=dict(saved["round_frames"]),
            snapshot_frames=dict(saved["snapshot_frames"]),
            round=int(saved["round"]),
        )
        self._turn = int(saved["turn"])
        self._finished = [from_row(row) for row in saved["finished"]]
        self._check_competitive(matches)

    def _end_round(self) -> None:
        matches, self._finished, self._turn = self._finished, [], 0
        self._files.add_matches(matches)
        self._check_competitive(matches)
        league, resets = self.league, self._history.last_resets
        counted = [m for m in matches if all(m.round > resets.get(name, -1) for name in m.players.values())]
        payoff, frames = league.payoff.add(counted), self._frames_of(league.players)
        self.league = league = replace(league, payoff=payoff, frames=frames)
        for player in league.learning:
            for decision in review(self.config, league, player.id, self.experiment.seed):
                self._carry_out(decision, league.players[decision.player or player.id])
        for request in requests_due(self._files.folder, self.league.round):
            self._grant(request)
        self.league = replace(self.league, frames=self._frames_of(self.league.players), round=league.round + 1)

    def _grant(self, request: PlayerRequest) -> None:
        """Freezes or retires a player as a user wants it, unless the league could not continue without it."""
        league, player = self.league, self.league.players.get(request.player)
        if player is None or (request.action == "freeze" and not player.learning):
            return
        changed = {**league.players, player.id: replace(player, learning=False)}
        if request.action == "retire":
            del changed[player.id]
        try:
            check_draws(self.config, replace(league, players=changed))
        except ConfigError as error:
            outcome = f"a request to {request.action} {player.id} was refused: {error}"
        else:
            self._stop_learning(player, request.reason, retires=request.action == "retire")
            outcome = f"{request.action} {player.id}, as requested{f' ({request.reason})' if request.reason else ''}"
        self._run.log_event(f"league, end of round {league.round}: {outcome}")

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
            part = self._join(added)
            if new.parent:
                self._inherit(added)
            self._log("added", added, reason)
            self.league = replace(self.league, players={**self.league.players, new.id: added})
            if new.with_snapshot:
                self._snapshot(added, reason)
            part.begin(0)
        elif decision.action == "freeze":
            self._stop_learning(player, reason, retires=False)
        elif decision.action == "retire":
            self._stop_learning(player, reason, retires=True)

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
        part, frames = self._parts[player.id], self._frames[player.id]
        sha256 = self._snapshots.write(player.id, frames, part.weights())
        player = replace(player, learning=False, checkpoint=sha256, born_at_frames=frames)
        self._log("frozen", player, reason)
        if part.env is not self.env:
            part.env.close()
        return player

    def _saved(self, snapshot: Player) -> Player:
        """A snapshot with its checkpoint: its parent's weights as they are now."""
        weights = self._parts[snapshot.parent].weights()
        return replace(snapshot, checkpoint=self._snapshots.write(snapshot.id, snapshot.born_at_frames, weights))

    def _inherit(self, player: Player) -> None:
        """A new player takes over its parent's weights."""
        if player.parent in self._parts:
            weights = self._parts[player.parent].weights()
        else:
            weights = self._snapshots.read(player.parent, self._history.known[player.parent].checkpoint)
        self._parts[player.id].load_weights(weights, player.parent)

    def _join(self, player: Player) -> LearningPlayer:
        """A learning player gets environments and learners."""
        experiment = player_experiment(self.experiment, self._spec, player, self._history.n_resets(player.id))
        is_first = not self._parts
        env = self._first_env if is_first else build_env(experiment, experiment.n_envs, device=experiment.device)
        try:
            matches = MatchEnv(
                env,
                player.id,
                self.league.sides,
                lambda n: self._draw(player.id, n),
                self.config.win_threshold,
                self.config.win_margin,
            )
            part = LearningPlayer(player, experiment, matches, self._device, self._opponents.find)
        except BaseException:
            if not is_first:
                env.close()
            raise
        self._parts[player.id] = part
        self._frames.setdefault(player.id, 0)
        return part

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
        if self._history.known[part.player.id].learning:
            return part.state_dict()
        return {"learners": {name: learner.state_dict() for name, learner in part.learners.items()}}
