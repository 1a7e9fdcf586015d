/** A cell that shows runs live in one chart. */
export function attachCell(paths: readonly string[]): string {
  return `import marlnb as mnb\n\nmnb.attach([\n${pathLines(paths)}])`;
}

function pathLines(paths: readonly string[]): string {
  return paths.map(path => `    ${JSON.stringify(path)},\n`).join('');
}

/** The cells of a notebook that maps runs by their agents' hidden states, and opens the two that differ most. */
export function mapCells(paths: readonly string[]): string[] {
  return [
    'import marlnb as mnb\nfrom marlnb import plots\n\n' +
      `runs = [mnb.Run.open(path) for path in [\n${pathLines(paths)}]]\n` +
      '# the observations that all runs receive: episodes of the first one\n' +
      'shared = mnb.record(runs[0], name="shared", episodes=20, exist="open")\n' +
      'shared.sites',
    'site = next(name for name in shared.sites if "/actor/" in name)\n' +
      'agent = str(shared[site].labels["agent"][0])\n' +
      'result = mnb.run_map(runs, shared, site=site, agent=agent)\n' +
      'plots.run_map_figure(result)\nresult',
    '# the two that differ most, of those with equal returns: each plays the episode in which they do\n' +
      'table = result.table().set_index(["a", "b"])\n' +
      'pair = result.most_different or table.index[0]\n' +
      'for run in [runs[result.runs.index(name)] for name in pair]:\n' +
      '    own = mnb.record(run, name="shared", episodes=20, exist="open")\n' +
      '    episode = int(table.loc[pair, "episode"])\n' +
      '    last = int(own.episodes.loc[episode, "n_steps"]) - 1\n' +
      '    display(mnb.microscope(own, episode, t=min(int(table.loc[pair, "step"]), last)))'
  ];
}

/** The cells of a notebook that makes a comparison again from the run folders. */
export function comparisonCells(paths: readonly string[]): string[] {
  return [
    `# runs to compare; seeds of the same setting are averaged\npaths = [\n${pathLines(paths)}]\naverage_over = ["seed"]`,
    'from marlnb.lab.compare import compare\n\n' +
      'comparison = compare(paths, average_over=average_over)\n' +
      'print("\\n".join(comparison["refusals"]))',
    'import matplotlib.pyplot as plt\n\n' +
      'for curve in comparison["curves"]:\n' +
      '    (line,) = plt.plot(curve["x"], curve["value"], label=curve["label"])\n' +
      '    if curve["low"]:\n' +
      '        plt.fill_between(curve["x"], curve["low"], curve["high"], color=line.get_color(), alpha=0.2)\n' +
      'plt.xlabel("frames")\nplt.ylabel("mean return of one agent (IQM over runs)")\nplt.legend();',
    'import pandas as pd\n\npd.DataFrame(comparison["differences"])'
  ];
}
