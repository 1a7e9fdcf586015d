import numpy as np
import pytest

from marlnb.analysis.representations.eta_squared import tuned_beyond_chance
from marlnb.analysis.stats.episode_shuffle import EpisodeShuffle
from marlnb.analysis.stats.mutual_information import mutual_information


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


def early_or_late(labelled_length: int, length: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Label `[episode]` of 6 of 60 episodes, with its own length of episodes; episode and time step `[row]`."""
    label = rng.permutation(np.arange(60) < 6).astype(np.int64)
    n_steps = np.where(label == 1, labelled_length, length)
    return label, np.repeat(np.arange(60), n_steps), np.concatenate([np.arange(n) for n in n_steps])


def test_constant_labels_are_permuted_whatever_the_lengths() -> None:
    rng = np.random.default_rng(0)
    label, episode, t = early_or_late(3, 8, rng)
    shuffle = EpisodeShuffle(episode, t, label[episode])
    np.testing.assert_allclose(np.bincount(episode, shuffle.weight), len(t) / 60)
    n_labelled_rows = set()
    for _ in range(20):
        shuffled = shuffle.permute(label[episode], rng)
        of_episode = shuffled[shuffle.start]
        assert np.array_equal(shuffled, of_episode[episode]) and of_episode.sum() == 6
        n_labelled_rows.add(int(shuffled.sum()))
    assert min(n_labelled_rows) > 3 * 6 and len(n_labelled_rows) > 1  # long episodes get it too
    (warning,) = shuffle.warnings("early", label[episode], ("false", "true"))
    assert "steps of 'false' on average, 3 of 'true'" in warning and warning.endswith(
        'rows="t < 3" compares the same steps'
    )
    assert not EpisodeShuffle(np.arange(60), label, label).is_permutation  # single rows: nothing is constant


@pytest.mark.parametrize("lengths", [(5, 20), (20, 5)], ids=["early", "late"])
def test_noise_is_not_called_tuned_to_a_label_of_short_or_long_episodes(lengths: tuple[int, int]) -> None:
    rng, n = np.random.default_rng(0), 100
    p_values = []
    for effect in np.repeat([0.0, 3.0], [n, 20]):
        label, episode, t = early_or_late(*lengths, rng)
        x = rng.standard_normal((60, 2))[episode] + 0.3 * rng.standard_normal((len(t), 2))
        x[:, 0] += effect * label[episode]
        bits = mutual_information(
            (x[:, 0] > 1.5 * (effect > 0)).astype(np.int64), label[episode], episode, t,
            names=("x", "label"), n_shuffles=39, rng=rng,
        )  # fmt: skip
        tuned = tuned_beyond_chance(x, label[episode], 2, episode, t, n_shuffles=39, rng=rng).min()
        p_values.append((tuned, bits.p_value))
    significant = np.array(p_values) <= 0.05
    assert (significant[:n].mean(axis=0) <= 0.11).all()  # more in 0.4% of such simulations, if the rate is 0.05
    assert (significant[n:].mean(axis=0) >= 0.9).all()


def test_labels_at_the_end_of_short_episodes_draw_a_warning() -> None:
    early, episode, t = early_or_late(3, 8, np.random.default_rng(0))
    dead = (early[episode] == 1) & (t == 2)
    (warning,) = EpisodeShuffle(episode, t, dead).warnings("dead", dead, ("false", "true"))
    assert warning.startswith("'dead' varies within episodes") and "'true' has 0.013 of the rows" in warning
    by_time = t % 2
    assert EpisodeShuffle(episode, t, by_time).warnings("parity", by_time, ("0", "1")) == ()
