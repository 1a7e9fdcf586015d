/** A cell that shows runs live in one chart. */
export function attachCell(paths: readonly string[]): string {
  return `import marlnb as mnb\n\nmnb.attach([\n${pathLines(paths)}])`;
}

function pathLines(paths: readonly string[]): string {
  return paths.map(path => `    ${JSON.stringify(path)},\n`).join('');
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
