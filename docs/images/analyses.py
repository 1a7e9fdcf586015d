"""The figures of the pages about runs, recordings and analyses: `pages.py` draws and saves them."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

import marlnb as mnb
from docs.images.trained import ROOT, Trained, of_page
from marlnb import plots
from marlnb.plots.canvas import OKABE_ITO

SITE = "listener/actor/hidden_2"
REFERENCES = {"random": -39.8, "no communication": -15.4, "scripted oracle": -7.5}


@of_page
def attribution(trained: Trained) -> Figure:
    result = mnb.attribute(trained.talk, group="listener", to="action", progress=False)
    names = result.feature_names
    parts = {"message": "message", "offsets to landmarks": "landmark", "own velocity": "velocity"}
    features = {label: [name for name in names if name.startswith(start)] for label, start in parts.items()}
    left, right = plots.panels(2, width=5.6, height=3.6)
    agents = trained.talk.spec.agents
    plots.attribution_bars(result, agents=agents, title="What determines the listener's actions", ax=left)
    plots.attribution_over_time(result, features=features, title="The same, step by step", ax=right)
    return left.figure


@of_page
def decoding(trained: Trained) -> Figure:
    def goal_to_the_right(recording: mnb.Recording) -> np.ndarray:
        """Offset from the listener to its goal along x, `[row]`."""
        observed = recording.steps("listener", "observation").to_numpy()[:, 0]
        names = recording.spec.group("listener").observation.names
        columns = np.array([names.index(f"landmark_{k}_dx") for k in range(3)])
        return observed[np.arange(len(observed)), columns[recording.label("goal").to_numpy().astype(int)]]

    titles = {"goal": "Which goal: the observation says it", goal_to_the_right: "Where it is: the network computes it"}
    axes = plots.panels(2, width=6.8, height=3.6)
    for ax, (label, title) in zip(axes, titles.items()):
        result = mnb.decode(trained.talk, site=SITE, label=label, n_shuffles=19, progress=False)
        plots.decoding_bars(result, agents=trained.talk.spec.agents, title=title, ax=ax)
    return axes[0].figure


@of_page
def interventions(trained: Trained) -> Figure:
    run = trained.run("speaker_listener")
    permuted = mnb.intervene(run, mnb.PermuteChannel("listener"), episodes=100)
    goal = mnb.decode(trained.talk, site="listener/actor/hidden_1", label="goal", n_shuffles=9, progress=False)
    red = goal.direction(value="red").steer()
    steered = mnb.intervene(run, red, strengths=[-2, 0, 2], episodes=60)
    left, right = plots.panels(2, width=5.6, height=3.4)
    plots.effect_sizes(permuted, title="The message of another episode", ax=left)
    plots.strength_response(steered, agents=["listener_0"], title="Steering the listener towards red", ax=right)
    return left.figure


@of_page
def comparing(trained: Trained) -> Figure:
    site, label = "adversary/actor/hidden_2", "adversary/prey_direction"
    tuning = mnb.tuning(trained.tag, site=site, agent="adversary_0", label=label, n_shuffles=40)
    embedding = mnb.embed(trained.tag, site=site, color=label, agents=["adversary_0"])
    left, right = plots.panels(2, width=6.0, height=4.0)
    plots.tuning_curves(
        tuning, units=list(tuning.order[:3]), title="Units of a chaser and the prey's direction", ax=left
    )
    plots.embedding_map(embedding, title="All its units: a compass", ax=right)
    return left.figure


@of_page
def dictionaries(trained: Trained) -> Figure:
    recording = trained.talk
    dictionary = mnb.train_dictionary(recording, site=SITE, n_features=128, k=8, epochs=30, seed=0, progress=False)
    features, rows = dictionary.features(recording)[:, 0], recording.rows
    goal, after = recording.label("goal").to_numpy(), (rows["t"] >= 3).to_numpy()
    fires = np.stack([(features[after & (goal == k)] > 0).mean(axis=0) for k in range(3)])
    specific = fires - np.stack([np.delete(fires, k, axis=0).max(axis=0) for k in range(3)])
    shown = np.concatenate([np.argsort(-specific[k])[:3] for k in range(3)])
    classes = recording.classes("goal")
    names = [f"{classes[k // 3]}: feature {feature}" for k, feature in enumerate(shown)]
    axes = plots.panels(3, width=4.4, height=3.2)
    for k, ax in enumerate(axes):
        episode = int(rows["episode"][after & (goal == k)].iloc[0])
        here = (rows["episode"] == episode).to_numpy()
        plots.feature_strip(
            features[here][:, shown],
            rows["t"][here].to_list(),
            names=names if k == 0 else [""] * len(names),
            title=f"An episode with goal {classes[k]}",
            maxima=features[:, shown].max(axis=0),
            ax=ax,
        )
    return axes[0].figure


@of_page
def agents_from_elsewhere(trained: Trained) -> Figure:
    agents = mnb.agents_from_benchmarl(ROOT / "data" / "benchmarl_simple_spread", path=trained.folder / "benchmarl")
    recording = mnb.record(agents, episodes=20, sites="*", progress=False)
    result = mnb.attribute(recording, group="agent", policies=agents.by_group, episodes=range(5), progress=False)
    left, right = plots.panels(2, width=5.8, height=3.6)
    units = recording["agent/actor/hidden_2"].sel(agent="agent_0", episode=0).to_numpy()
    plots.activation_map(units, agent="agent_0 of BenchMARL", site="agent/actor/hidden_2", ax=left)
    plots.attribution_bars(result, agent="agent_0", agents=recording.agents, max_features=10, ax=right)
    return left.figure


@of_page
def recordings(trained: Trained) -> Figure:
    axes = plots.panels(2, width=5.4, height=3.6)
    for ax, agent in zip(axes, trained.talk.spec.agents):
        units = trained.talk[f"{agent.removesuffix('_0')}/actor/hidden_2"].sel(agent=agent, episode=7).to_numpy()
        plots.activation_map(units, agent=agent, site="hidden_2, one episode", bound=1.0, ax=ax)
    return axes[0].figure


@of_page
def runs_and_checkpoints(trained: Trained) -> Figure:
    run = trained.run("speaker_listener")
    metrics = run.metrics()
    returns = metrics["returns/listener"]
    ax = plots.learning_curve(
        metrics["frames"], returns, references=REFERENCES, smooth=3, title="A run, and its checkpoints in data/"
    )
    for checkpoint in run.checkpoints:
        x = checkpoint.frames / 1_000  # the axis counts thousands
        ax.axvline(x, color=OKABE_ITO[7], linewidth=0.8, zorder=0)
        ax.text(x, 1.0, f" {checkpoint.iteration}", transform=ax.get_xaxis_transform(), fontsize=8)
    return ax.figure


@of_page
def mixtures(trained: Trained) -> Figure:
    metrics = trained.run("simple_tag").metrics()
    returns = {
        f"{group} ({by})": metrics[f"returns/{group}"] for group, by in (("adversary", "MAPPO"), ("agent", "IPPO"))
    }
    return plots.learning_curve(
        metrics["frames"], returns, title="Hunters and prey, each with its own algorithm"
    ).figure
