import numpy as np

from marlnb.analysis.stats.episode_shuffle import EpisodeShuffle


def test_permuted_labels_keep_their_course_and_lose_their_episode() -> None:
    episode = np.array([7, 7, 7, 2, 2, 9, 9, 9])
    y = np.array([0, 1, 2, 10, 11, 20, 21, 22])
    shuffle = EpisodeShuffle(episode, np.array([0, 1, 2, 0, 1, 0, 1, 2]))
    shuffles = {tuple(shuffle.permute(y, np.random.default_rng(k)).tolist()) for k in range(60)}
    long = [
        ((0, 1, 2), (20, 21, 22)),
        ((20, 21, 22), (0, 1, 2)),
    ]  # no label is known for the third step of the short one
    assert shuffles == {(*a, *short, *b) for a, b in long for short in ((0, 1), (10, 11), (20, 21))}


def test_agents_that_appear_late_or_disappear_early_get_labels_of_the_same_time_steps() -> None:
    steps = [np.arange(0, 12), *(np.arange(k, 12) for k in range(1, 7)), *(np.arange(0, 12 - k) for k in range(1, 4))]
    t = np.concatenate(steps)
    episode = np.repeat(np.arange(len(steps)), list(map(len, steps)))
    shuffle, rng = EpisodeShuffle(episode, t), np.random.default_rng(0)
    for _ in range(20):
        assert np.array_equal(shuffle.permute(t, rng), t)
    others = np.stack([shuffle.draw(rng) for _ in range(7000)])
    chosen = np.stack([np.bincount(column, minlength=len(steps)) for column in others.T]) / 7000
    covers = np.array([[set(a) <= set(b) for b in steps] for a in steps], float)
    expected = covers / covers.sum(axis=1, keepdims=True)  # every episode that has all steps, equally often
    np.testing.assert_allclose(chosen, expected, atol=0.03)


def test_a_step_that_the_other_episode_lacks_is_replaced_by_its_nearest() -> None:
    episode, t = np.repeat([0, 1], 4), np.array([0, 3, 4, 9, 0, 1, 7, 9])
    rows = EpisodeShuffle(episode, t).rows(np.array([1, 0]))
    assert rows.tolist() == [4, 5, 5, 7, 0, 0, 3, 3]  # 4 lies between 1 and 7: the earlier one
