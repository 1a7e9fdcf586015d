import { nullTranslator } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';
import { render } from 'preact';
import { describe, expect, it } from 'vitest';
import { CommandIDs } from '../src/commandIds';
import type { Context } from '../src/context';
import type { Live } from '../src/live';
import type { QueuedBatch } from '../src/messages';
import { SubmittedJobs } from '../src/queue/submittedJobs';

const JOB = { state: 'complete', reason: '', progress: '', attempt: 1, seconds: 5, id: '', node: 'n1', time_left_s: null } as const;
const BATCH: QueuedBatch = {
  path: '/runs/b',
  name: 'b',
  notebook: 'n.ipynb',
  executor: 'local',
  summary: '',
  jobs: Array.from({ length: 60 }, (_, index) => ({ ...JOB, name: `seed=${index}`, notebook: index === 0 ? '/runs/b/n.ipynb' : '' }))
};

describe('jobs that were submitted', () => {
  it('have their executed notebooks one click away, and the first of very many are shown', () => {
    const executed: unknown[] = [];
    const commands = { execute: (command: string, args: object) => Promise.resolve(executed.push([command, args])) };
    const context = { commands, trans: nullTranslator.load('marlnb') } as unknown as Context;
    const live = { changed: new Signal({}), answer: BATCH, error: '' } as unknown as Live<QueuedBatch | null>;
    const box = document.createElement('div');
    render(<SubmittedJobs context={context} live={live} />, box);
    expect(box.querySelectorAll('tr').length).toBe(50);
    expect(box.querySelector('caption')?.textContent).toBe('10 more jobs are in the queue.');
    const [open, notebook] = [...(box.querySelector('tr')?.querySelectorAll('button') ?? [])];
    open?.click();
    notebook?.click();
    expect(executed).toEqual([
      [CommandIDs.openJob, { batch: '/runs/b', name: 'seed=0' }],
      [CommandIDs.openFile, { path: '/runs/b/n.ipynb' }]
    ]);
    expect(box.querySelectorAll('tr')[1]?.querySelectorAll('button')[1]?.disabled).toBe(true);
  });
});
