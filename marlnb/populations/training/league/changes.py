"""LeagueChanges: what happens to the players of a league, by decisions of its config and by requests of a user."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from marlnb.errors import ConfigError
from marlnb.league_config import LeagueConfig
from marlnb.populations.league.draws import LEARNER_ACTIONS, draw_match
from marlnb.populations.league.player_log import PlayerEvent, What
from marlnb.populations.league.players import NewPlayer, Player, snapshot_id
from marlnb.populations.league.roster import player_sides
from marlnb.populations.league.state import Decision, LeagueState
from marlnb.populations.training.league.files import LeagueFiles, PlayerHistory
from marlnb.populations.training.league.match_env import MatchStart
from marlnb.populations.training.league.player_weights import PlayerWeights
from marlnb.populations.training.league.players import LeaguePlayers
from marlnb.populations.training.other_processes.requests import PlayerRequest, refused


class LeagueChanges:
    """Changes a league, and writes each change to `players.jsonl`.

    Args:
        league: as it is planned.
        config: its options.
        players: that learn or have learned here.
        weights: theirs.
        files: of the league.
        history: everybody in the league.
        seed: of the experiment.

    Attributes:
        league: as it is now.
        is_started: whether its first players are written.
    """

    def __init__(
        self,
        league: LeagueState,
        config: LeagueConfig,
        players: LeaguePlayers,
        weights: PlayerWeights,
        files: LeagueFiles,
        history: PlayerHistory,
        seed: int,
    ) -> None:
        self.league, self.is_started = league, False
        self._config, self._seed = config, seed
        self._players, self._weights, self._files, self._history = players, weights, files, history

    def begin(self) -> None:
        """Writes the league's first players. Weights are copied from parents and from other runs."""
        self._files.cut(0, 0)
        players = dict(self.league.players)
        sides = player_sides(self.league.sides, self.league.is_symmetric)
        new_players = {new.id: new for new in self._config.roster(sides)}
        for name, player in players.items():
            if player.is_snapshot:
                players[name] = player = self._saved(player)
            elif player.parent:
                self._weights.inherit(player)
            self.log("snapshot" if player.is_snapshot else "added", player, "the league begins")
            if not player.is_snapshot and not player.learning:
                whose = self._weights.copy_from_run(new_players[name])
                players[name] = self._frozen(player, f"weights of {whose}")
        self.league = replace(self.league, players=players)
        self.is_started = True

    def join(self, player: Player) -> None:
        """A player gets environments, in which it meets the players of the league as it is then, and learners."""
        self._players.join(player, partial(self._draw, player.id))

    def carry_out(self, decision: Decision, reviewed: str) -> bool:
        """Changes the league by a decision of a player's review, unless an earlier one has made it impossible.

        Returns:
            whether it was possible: the league has a place for who would join, and a player to be changed still plays.
        """
        new, reason = decision.new, decision.reason
        n_joining = {"add": 1 + bool(new and new.with_snapshot), "snapshot": 1}.get(decision.action, 0)
        if n_joining and len(self.league.players) + n_joining > self._config.max_players:
            return False
        if decision.action == "add":
            assert new is not None
            self._add(new, reason)
            return True
        player = self.league.players.get(decision.player or reviewed)
        if player is None or (decision.action in LEARNER_ACTIONS and not player.learning):
            return False
        if decision.action == "snapshot":
            self._snapshot(player, reason)
        elif decision.action == "reset":
            self._reset(player, reason)
        else:
            self._stop_learning(player, reason, retires=decision.action == "retire")
        return True

    def grant(self, request: PlayerRequest) -> str:
        """Freezes or retires a player as a user wants it, unless the league could not continue without it.

        Returns:
            what happened, for the run's log; empty: nothing.
        """
        player = self.league.players.get(request.player)
        if player is None or (request.action == "freeze" and not player.learning):
            return ""
        if refusal := refused(request, self._config, self.league):
            return f"a request to {request.action} {player.id} was refused: {refusal}"
        self._stop_learning(player, request.reason, retires=request.action == "retire")
        return f"{request.action} {player.id}, as requested{f' ({request.reason})' if request.reason else ''}"

    def log(self, what: What, player: Player, reason: str) -> None:
        """Writes an event of a player."""
        event = PlayerEvent(
            event=what,
            player=player.id,
            round=self.league.round if self.is_started else -1,
            frames=self._players.frames.get(player.id, player.born_at_frames),
            role=player.role,
            side=player.side,
            parent=player.parent,
            checkpoint=player.checkpoint,
            reason=reason,
        )
        self._files.add_event(event)
        self._history.add(event)

    def _draw(self, player: str, number: int) -> MatchStart:
        pairing, frames = draw_match(self._config, self.league, player, number, self._seed), self._players.frames
        known = self._history.known
        versions = tuple(frames.get(name, known[name].born_at_frames) for name in pairing.players.values())
        return MatchStart(number, pairing, versions, self.league.round)

    def _add(self, new: NewPlayer, reason: str) -> None:
        if new.id in self.league.players:
            raise ConfigError(f"league {self._config.name!r} adds the player {new.id!r}, which exists already")
        added = Player(new.id, new.role, new.side, parent=new.parent)
        self.join(added)
        if new.parent:
            self._weights.inherit(added)
        self.log("added", added, reason)
        self.league = replace(self.league, players={**self.league.players, new.id: added})
        if new.with_snapshot:
            self._snapshot(added, reason)

    def _snapshot(self, player: Player, reason: str) -> None:
        name = snapshot_id(player.id, self._history.n_snapshots(player.id))
        frames = self._players.frames[player.id]
        snapshot = self._saved(Player(name, player.role, player.side, False, player.id, frames))
        self.log("snapshot", snapshot, reason)
        taken = {**self.league.snapshot_frames, player.id: frames}
        self.league = replace(self.league, players={**self.league.players, name: snapshot}, snapshot_frames=taken)

    def _reset(self, player: Player, reason: str) -> None:
        self.log("reset", player, reason)
        self.league = replace(self.league, payoff=self.league.payoff.forget(player.id))
        self._players.restart(player)

    def _stop_learning(self, player: Player, reason: str, *, retires: bool) -> None:
        players = dict(self.league.players)
        if player.learning:
            if len(self.league.learning) == 1:
                raise ConfigError(
                    f"league {self._config.name!r} would {'retire' if retires else 'freeze'} {player.id!r} ({reason}), "
                    "the last player that learns; end the training instead, as with frames= or the file STOP"
                )
            player = self._frozen(player, reason)
        players[player.id] = player
        if retires:
            self.log("retired", player, reason)
            del players[player.id]
        self.league = replace(self.league, players=players)

    def _frozen(self, player: Player, reason: str) -> Player:
        """A player with its weights saved, which learns no longer and needs no environments."""
        frames = self._players.frames[player.id]
        sha256 = self._weights.save(player.id, player.id, frames)
        player = replace(player, learning=False, checkpoint=sha256, born_at_frames=frames)
        self.log("frozen", player, reason)
        self._players.close_env(player.id)
        return player

    def _saved(self, snapshot: Player) -> Player:
        """A snapshot with its checkpoint: its parent's weights as they are now."""
        sha256 = self._weights.save(snapshot.parent, snapshot.id, snapshot.born_at_frames)
        return replace(snapshot, checkpoint=sha256)
