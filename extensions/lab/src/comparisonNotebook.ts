import type { RunMapAnswer } from './messages';

/** A cell that shows runs live in one chart. */
export function attachCell(paths: readonly string[]): string {
  return `import marlnb as mnb\n\nmnb.attach([\n${pathLines(paths)}])`;
}

function pathLines(paths: readonly string[]): string {
  return paths.map(path => `    ${JSON.stringify(path)},\n`).join('');
}

/** The cells of a notebook that makes a map of runs again, and opens the two that differ most. */
export function mapCells(map: RunMapAnswer): string[] {
  return [
    'import marlnb as mnb\nfrom marlnb import plots\n\n' +
      `runs = [mnb.Run.open(path) for path in [\n${pathLines(map.paths)}]]\n` +
      '# the observations that all runs receive\n' +
      `shared = mnb.Recording.open(${JSON.stringify(map.recording)})\n` +
      'shared.sites',
    `site = ${JSON.stringify(map.site)}\nagent = ${JSON.stringify(map.agent)}\n` +
      'result = mnb.run_map(runs, shared, site=site, agent=agent)\n' +
      'plots.run_map_figure(result)\nresult',
    '# the two that differ most, of those with equal returns: both receive the observations at which they do\n' +
      'table = result.table().set_index(["a", "b"])\n' +
      'pair = result.most_different or table.index[0]\n' +
      'episode, step = (int(table.loc[pair, name]) for name in ("episode", "step"))\n' +
      'scope = mnb.microscope(shared, episode, t=step, layer=site.split("/", 1)[1])\n' +
      'scope.show_networks(*(runs[result.runs.index(name)] for name in pair))\nscope'
  ];
}

/** The cell that opens two runs of a map side by side, at the observations at which their units differ most. */
export function pairCells(map: RunMapAnswer, pair: RunMapAnswer['pairs'][number]): string[] {
  const layer = map.site.slice(map.site.indexOf('/') + 1);
  const [a, b] = [map.paths[pair.a] ?? '', map.paths[pair.b] ?? ''];
  return [
    'import marlnb as mnb\n\n' +
      '# both networks receive the observations of this episode; at this step their units differ most\n' +
      `recording = mnb.Recording.open(${JSON.stringify(map.recording)})\n` +
      `scope = mnb.microscope(recording, ${pair.episode}, t=${pair.step}, layer=${JSON.stringify(layer)})\n` +
      `scope.show_networks(\n${pathLines([a, b])})\nscope`
  ];
}

/** The cells of a notebook that makes a comparison again from the run folders. */
export function comparisonCells(paths: readonly string[], averageOver: readonly string[]): string[] {
  return [
    `# runs to compare; those that differ only in these settings are averaged\npaths = [\n${pathLines(paths)}]\naverage_over = [${averageOver.map(name => JSON.stringify(name)).join(', ')}]`,
    'from marlnb.lab.compare import compare\n\n' +
      'comparison = compare(paths, average_over=average_over)\n' +
      'print("\\n".join(comparison["refusals"]))',
    'import matplotlib.pyplot as plt\n\n' +
      'for curve in comparison["curves"]:\n' +
      '    (line,) = plt.plot(curve["x"], curve["value"], label=curve["label"])\n' +
      '    if curve["low"]:\n' +
      '        plt.fill_between(curve["x"], curve["low"], curve["high"], color=line.get_color(), alpha=0.2)\n' +
      'plt.xlabel("frames")\nplt.ylabel("mean return of one agent (IQM over runs)")\nplt.legend();',
    'import pandas as pd\n\n' +
      'scores = [(curve["label"], len(curve["runs"]), *curve["score"]) for curve in comparison["curves"]]\n' +
      'pd.DataFrame(scores, columns=["setting", "runs", "IQM", "low", "high"])',
    'pd.DataFrame(comparison["tests"])',
    'pd.DataFrame(comparison["differences"])'
  ];
}
