import { describe, expect, it } from 'vitest';
import { byActivity, grouped, groupTitle, matches, progress, shortName, stateLine, subject } from '../src/runRows';
import { RUN } from './run';

describe('a run', () => {
  it('is described by its state, progress and time left', () => {
    expect(stateLine(RUN)).toBe('training · 45% · 3:20 left');
    expect(stateLine({ ...RUN, state: 'complete', frames: 1_000_000 })).toBe('complete · 1.00M frames');
    expect(stateLine({ ...RUN, state: 'unreadable', frames: 0, frames_total: null })).toBe('unreadable');
    expect(subject(RUN)).toBe('mpe/simple_spread · mappo · seed 3');
    expect(progress({ ...RUN, frames: 2_000_000 })).toBe(1);
  });
  it('is called by its name within its group', () => {
    expect(shortName(RUN)).toBe('algorithm=mappo,seed=3');
    expect(groupTitle(RUN.group)).toBe('both');
  });
  it('matches a search if every word is in its texts', () => {
    expect(matches(RUN, 'MAPPO training')).toBe(true);
    expect(matches(RUN, 'baseline node7 seed=3')).toBe(true);
    expect(matches(RUN, 'mappo failed')).toBe(false);
  });
});

describe('runs', () => {
  it('are in order of activity, then age, then name with numbers', () => {
    const done = { ...RUN, state: 'complete' as const };
    const rows = [{ ...done, name: 'b10' }, { ...done, name: 'b9' }, { ...done, name: 'new', updated: 99 }, RUN];
    expect(rows.sort(byActivity).map(run => run.name)).toEqual([RUN.name, 'new', 'b9', 'b10']);
  });
  it('are grouped by folder', () => {
    const groups = grouped([RUN, { ...RUN, group: '' }, { ...RUN, path: 'other' }]);
    expect(groups.map(group => [group.group, group.runs.length])).toEqual([['both/jobs', 2], ['', 1]]);
  });
});
