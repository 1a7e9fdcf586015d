import { nullTranslator } from '@jupyterlab/translation';
import { describe, expect, it } from 'vitest';
import { byActivity, grouped, groupOf, matches, progress, rowTitle, scoreNumbers, scoreText, shortName, stateLine, subject } from '../src/runRows';
import { RUN } from './run';

const TRANS = nullTranslator.load('marlnb');

describe('a run', () => {
  it('is described by its state, progress and time left', () => {
    expect(stateLine(RUN, TRANS)).toBe('training · 45% · 3:20 left');
    expect(stateLine({ ...RUN, state: 'complete', frames: 1_000_000 }, TRANS)).toBe('complete · 1.00M frames');
    expect(stateLine({ ...RUN, state: 'unreadable', frames: 0 }, TRANS)).toBe('unreadable');
    expect(subject(RUN, TRANS)).toBe('mpe/simple_spread · mappo · seed 3');
    expect(progress({ ...RUN, frames: 2_000_000 })).toBe(1);
  });
  it('has a return, or one of each group where groups are rewarded differently', () => {
    expect([scoreText, scoreNumbers].map(text => text({ ...RUN, score: 1.5 }))).toEqual(['1.5', '1.5']);
    const tag = { ...RUN, score: 1.5, score_of: 'adversary', returns: { adversary: 1.5, agent: -2 } };
    expect([scoreText, scoreNumbers].map(text => text(tag))).toEqual(['adversary 1.5, agent -2', '1.5 / -2']);
    expect(scoreText({ ...RUN, score: null })).toBe('');
  });
  it('says on its title what a narrow row cuts off', () => {
    const title = rowTitle({ ...RUN, note: 'why' }, TRANS);
    expect(title).toBe(`${RUN.path}\nmpe/simple_spread · mappo · seed 3\nnode7\nwhy`);
  });
  it('is called by its name within its group', () => {
    expect(shortName(RUN, 'folder')).toBe('algorithm=mappo,seed=3');
    expect(shortName(RUN, 'league')).toBe(RUN.name);
    expect(groupOf(RUN, 'folder')).toBe('both');
  });
  it('matches a search if every word is in its texts', () => {
    expect(matches(RUN, 'MAPPO training', TRANS)).toBe(true);
    expect(matches(RUN, 'baseline node7 seed=3', TRANS)).toBe(true);
    expect(matches(RUN, 'mappo failed', TRANS)).toBe(false);
  });
  it('matches a setting only with its whole number', () => {
    const run = { ...RUN, name: 'lr=3e-4,n=3', seed: 33 };
    expect(['seed=33', 'seed=3', 'seed=', 'lr=3e-4', 'lr=3', 'n=3', 'see'].map(search => matches(run, search, TRANS))).toEqual([
      true,
      false,
      true,
      true,
      false,
      true,
      true
    ]);
  });
});

describe('runs', () => {
  it('are in order of activity, then age, then name with numbers', () => {
    const done = { ...RUN, state: 'complete' as const };
    const rows = [{ ...done, name: 'b10' }, { ...done, name: 'b9' }, { ...done, name: 'new', updated: 99 }, RUN];
    expect(rows.sort(byActivity).map(run => run.name)).toEqual([RUN.name, 'new', 'b9', 'b10']);
    const alive = [{ ...RUN, name: 'a', updated: 1 }, { ...RUN, name: 'b', updated: 2 }];
    expect(alive.sort(byActivity).map(run => run.name)).toEqual(['a', 'b']); // whichever was written last
  });
  it('are grouped by folder, league or population', () => {
    const groups = grouped([RUN, { ...RUN, group: '' }, { ...RUN, path: 'other' }], 'folder');
    expect(groups.map(group => [group.group, group.runs.length])).toEqual([['both', 2], ['', 1]]);
    const runs = [{ ...RUN, league: 'psro' }, { ...RUN, evolution: 'pbt' }, { ...RUN, evolution: 'pbt' }];
    expect(grouped(runs, 'evolution').map(group => [group.group, group.runs.length])).toEqual([['pbt', 2], ['', 1]]);
    expect(grouped(runs, 'league').map(group => [group.group, group.runs.length])).toEqual([['psro', 1], ['', 2]]);
  });
});
