import { nullTranslator } from '@jupyterlab/translation';
import { describe, expect, it } from 'vitest';
import { attachCell, comparisonCells, mapCells } from '../src/comparisonNotebook';
import { flatten } from '../src/configuration';
import type { RunMapAnswer } from '../src/messages';
import { columns } from '../src/tableColumns';
import { DEFAULT_VIEW, tableRows, type TableView } from '../src/tableRows';
import { RUN } from './run';

const TRANS = nullTranslator.load('marlnb');
const COLUMNS = columns(TRANS, 'folder');
const RUNS = [
  { ...RUN, path: '/1', name: 'a/10', group: 'a', score: 5 },
  { ...RUN, path: '/2', name: 'b/9', group: 'b', score: null },
  { ...RUN, path: '/3', name: 'a/9', group: 'a', score: -3 }
];

function shown(view: Partial<TableView>): string[] {
  return tableRows(RUNS, { ...DEFAULT_VIEW, ...view }, COLUMNS, TRANS).map(row =>
    row.kind === 'group' ? `${row.title}:${row.runs.length}` : row.run.path
  );
}

describe('the table', () => {
  it('sorts names with numbers, and groups keep that order', () => {
    expect(shown({ sort: 'name', descending: false, group: '' })).toEqual(['/3', '/1', '/2']);
    expect(shown({ sort: 'name', descending: false })).toEqual(['a:2', '/3', '/1', 'b:1', '/2']);
    expect(shown({ group: 'state' })[0]).toBe('training:3'); // as in the rows
  });
  it('sorts numbers, of which unknown ones are the smallest', () => {
    expect(shown({ sort: 'score', descending: true, group: '' })).toEqual(['/1', '/3', '/2']);
  });
  it('shows what matches', () => {
    expect(shown({ search: 'b/9' })).toEqual(['b:1', '/2']);
  });
});

describe('a configuration', () => {
  it('is shown as joined names and plain values', () => {
    const experiment = { env: { name: 'x', wrapped: {} }, model: { hidden: [64, 64] }, critic: null, tuned: false };
    expect(flatten(experiment)).toEqual([
      ['env.name', 'x'],
      ['env.wrapped', '{}'],
      ['model.hidden', '[64,64]'],
      ['critic', 'null'],
      ['tuned', 'false']
    ]);
  });
});

describe('a comparison as a notebook', () => {
  it('quotes hostile paths', () => {
    const paths = ['/a"b\\n', "/a'; import os"];
    for (const source of [comparisonCells(paths, ['seed'])[0], mapCells({ paths } as RunMapAnswer)[0], attachCell(paths)]) {
      expect(source).toContain('    "/a\\"b\\\\n",\n    "/a\'; import os",\n');
    }
  });
});
