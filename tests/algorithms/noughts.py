"""Tic-tac-toe as PettingZoo plays it, solved by minimax. Cells go column by column; `[own, other]` marks are seen."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from marlnb.models.policies.policy import Policy

Board = tuple[int, ...]  # 0 empty, 1 and -1 the marks of the first and the second player
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
EMPTY: Board = (0,) * 9


def winner(board: Board) -> int:
    """1 or -1 where three stand in a line, else 0."""
    return next((board[a] for a, b, c in LINES if board[a] and board[a] == board[b] == board[c]), 0)


def free(board: Board) -> list[int]:
    return [cell for cell, mark in enumerate(board) if not mark]


def moved(board: Board, cell: int, mark: int) -> Board:
    return (*board[:cell], mark, *board[cell + 1 :])


@cache
def worth(board: Board, mark: int) -> int:
    """To the player `mark`, whose move it is, when both play perfectly: 1, 0 or -1."""
    if winner(board) or not free(board):
        return winner(board) * mark
    return max(-worth(moved(board, cell, mark), -mark) for cell in free(board))


def best_moves(board: Board, mark: int) -> list[int]:
    """All moves of perfect play."""
    return [cell for cell in free(board) if -worth(moved(board, cell, mark), -mark) == worth(board, mark)]


def board_of(observation: Tensor) -> Board:
    """What `[3, 3, 2]` shows, own marks as 1."""
    marks = observation[..., 0] - observation[..., 1]
    return tuple(int(mark) for mark in marks.flatten())


def observation_of(board: Board, mark: int) -> Tensor:
    marks = torch.tensor(board).view(3, 3) * mark
    return torch.stack((marks == 1, marks == -1), -1).float()


def losses_over_all_lines(policy: Policy, seat: int, perfect: bool) -> tuple[int, int]:
    """(lost, all) positions at the end of games of the greedy policy in `seat`, whatever the other one does.

    perfect: the other one plays any perfect move; otherwise any move at all. A policy of one group of two agents.
    """
    mine, ends, boards = 1 - 2 * seat, [], {EMPTY}
    for turn in range(9):
        mark = 1 - 2 * (turn % 2)
        open_boards = [board for board in boards if not winner(board)]
        ends += [board for board in boards if winner(board)]
        if mark == mine:
            boards = {moved(b, c, mark) for b, c in zip(open_boards, _chosen(policy, open_boards, mark, seat))}
        else:
            replies = best_moves if perfect else lambda board, mark: free(board)
            boards = {moved(board, cell, mark) for board in open_boards for cell in replies(board, mark)}
    ends += list(boards)
    return sum(winner(board) == -mine for board in ends), len(ends)


def _chosen(policy: Policy, boards: list[Board], mark: int, seat: int) -> list[int]:
    if not boards:
        return []
    n_agents = policy.group.n_agents
    observation = torch.stack([observation_of(board, mark) for board in boards])
    mask = torch.tensor([[not cell for cell in board] for board in boards])
    output = policy.act(
        observation[:, None].expand(-1, n_agents, -1, -1, -1),
        action_mask=mask[:, None].expand(-1, n_agents, -1),
        explore=False,
    )
    return output.action[:, seat if n_agents == 2 else 0].tolist()  # type: ignore[no-any-return]
