import { nullTranslator } from '@jupyterlab/translation';
import { describe, expect, it } from 'vitest';
import type { QueuedBatch, QueuedJob } from '../src/messages';
import { canCancel, canRunAgain, jobLine, queueRows, rowKey } from '../src/queue/rows';

const TRANS = nullTranslator.load('marlnb');

const JOB: QueuedJob = {
  name: 'seed=0',
  state: 'running',
  reason: '',
  progress: 'cell 4 of 20',
  attempt: 1,
  seconds: 0,
  id: '17_0',
  node: 'n1',
  time_left_s: 200,
  notebook: ''
};
const QUEUED: QueuedJob = { ...JOB, name: 'seed=1', state: 'queued', reason: 'Priority', progress: '', node: '', time_left_s: null };
const FAILED: QueuedJob = { ...QUEUED, name: 'seed=2', state: 'failed', reason: 'cell 2: ValueError: no', node: 'n2' };
const DONE: QueuedJob = { ...FAILED, name: 'seed=3', state: 'complete', reason: 'old', seconds: 65 };
const BATCH: QueuedBatch = {
  path: '/runs/b',
  name: 'b',
  notebook: 'n.ipynb',
  executor: 'slurm',
  summary: '',
  jobs: [DONE, FAILED, QUEUED, JOB]
};
const OLD: QueuedBatch = { ...BATCH, path: '/runs/a', name: 'a', jobs: [DONE] };
const names = (rows: ReturnType<typeof queueRows>): string[] =>
  rows.map(row => (row.kind === 'batch' ? row.batch.name : row.job.name));

describe('a job', () => {
  it('says where it runs and how long it may, why it waits, or why it ended', () => {
    expect(jobLine(JOB, TRANS)).toBe('running · n1 · 3:20 until its limit · cell 4 of 20');
    expect(jobLine(QUEUED, TRANS)).toBe('queued · Priority');
    expect(jobLine(FAILED, TRANS)).toBe('failed · n2 · cell 2: ValueError: no');
    expect(jobLine(DONE, TRANS)).toBe('complete · n2 · 1:05');
  });
  it('is cancelled before its end and run again after it', () => {
    expect([JOB, QUEUED, FAILED, DONE].map(job => canCancel([job]))).toEqual([true, true, false, false]);
    expect([JOB, QUEUED, FAILED, DONE].map(job => canRunAgain([job]))).toEqual([false, false, true, false]);
    expect(canCancel(BATCH.jobs) && canRunAgain(BATCH.jobs)).toBe(true);
  });
});

const CHOSEN = new Map([
  ['/runs/a', true],
  ['/runs/b', false]
]);

describe('the queue', () => {
  it('shows active batches and jobs first, and ended batches closed', () => {
    expect(names(queueRows([OLD, BATCH], '', new Map()))).toEqual(['b', 'seed=0', 'seed=1', 'seed=2', 'seed=3', 'a']);
    expect(names(queueRows([OLD, BATCH], '', CHOSEN))).toEqual(['b', 'a', 'seed=3']);
    expect(names(queueRows([OLD], '', new Map(), new Set(['/runs/a'])))).toEqual(['a', 'seed=3']);
  });
  it('leaves a batch open that a person opened, whatever its jobs do', () => {
    const again = { ...OLD, jobs: [{ ...DONE, state: 'running' as const }] };
    expect(names(queueRows([again], '', CHOSEN, new Set(['/runs/a'])))).toEqual(['a', 'seed=3']);
    expect(names(queueRows([OLD], '', CHOSEN, new Set(['/runs/a'])))).toEqual(['a', 'seed=3']);
  });
  it('is searched by words', () => {
    expect(names(queueRows([OLD, BATCH], 'slow', new Map()))).toEqual([]);
    expect(names(queueRows([OLD, BATCH], 'N2 complete', new Map()))).toEqual(['b', 'seed=3', 'a', 'seed=3']);
    expect(new Set(queueRows([OLD, BATCH], 'complete', new Map()).map(rowKey)).size).toBe(4);
  });
});
