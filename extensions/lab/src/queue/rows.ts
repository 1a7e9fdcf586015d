import type { TranslationBundle } from '@jupyterlab/translation';
import { formatClock } from '@marlnb/views';
import type { JobState, QueuedBatch, QueuedJob } from '../messages';
import { endWords } from '../stateWords';

/** Between two readings of the queue's files; the kernel calls a scheduler less often. */
export const INTERVAL_MS = 5000;
const ORDER: readonly JobState[] = [
  'running',
  'starting',
  'queued',
  'waiting',
  'failed',
  'interrupted',
  'stopped',
  'complete'
];
const ENDED: readonly JobState[] = ['failed', 'stopped', 'complete'];
const MAY_RUN_AGAIN: readonly JobState[] = ['waiting', 'failed', 'stopped', 'interrupted'];

export type QueueRow =
  | { kind: 'batch'; batch: QueuedBatch; isOpen: boolean }
  | { kind: 'job'; batch: QueuedBatch; job: QueuedJob };

/** Whether the job runs, or starts by itself. */
export function isActive(job: QueuedJob): boolean {
  return job.state === 'running' || job.state === 'starting' || job.state === 'queued';
}

export function canCancel(jobs: readonly QueuedJob[]): boolean {
  return jobs.some(job => !ENDED.includes(job.state));
}

export function canRunAgain(jobs: readonly QueuedJob[]): boolean {
  return jobs.some(job => MAY_RUN_AGAIN.includes(job.state));
}

function stateWord(state: JobState, trans: TranslationBundle): string {
  const words: Record<JobState, string> = {
    ...endWords(trans),
    waiting: trans.__('waiting'),
    queued: trans.__('queued'),
    starting: trans.__('starting'),
    running: trans.__('running')
  };
  return words[state];
}

/** State, place, what it does and the time that its limit leaves it; or why it waits or has ended. */
export function jobLine(job: QueuedJob, trans: TranslationBundle): string {
  const left = job.time_left_s === null ? '' : trans.__('%1 until its limit', formatClock(job.time_left_s));
  const spent = job.state === 'complete' && job.seconds > 0 ? formatClock(job.seconds) : '';
  const reason = job.state === 'complete' || job.state === 'running' ? '' : job.reason;
  return [stateWord(job.state, trans), job.node, spent, left, job.progress, reason].filter(Boolean).join(' · ');
}

/**
 * Batches with jobs that run or wait first. A batch is open or closed as a person chose (`isChosenOpen`, by path);
 * without a choice it is open if it has such jobs, or had some (`wasActive`).
 */
export function queueRows(
  batches: readonly QueuedBatch[],
  search: string,
  isChosenOpen: ReadonlyMap<string, boolean>,
  wasActive: ReadonlySet<string> = new Set()
): QueueRow[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const rows: QueueRow[] = [];
  for (const batch of [...batches].sort((a, b) => Number(b.jobs.some(isActive)) - Number(a.jobs.some(isActive)))) {
    const jobs = batch.jobs.filter(job => {
      const text = [batch.name, job.name, job.state, job.node, job.id, job.reason].join(' ').toLowerCase();
      return words.every(word => text.includes(word));
    });
    if (jobs.length === 0) {
      continue;
    }
    const isOpen = words.length > 0 || (isChosenOpen.get(batch.path) ?? (batch.jobs.some(isActive) || wasActive.has(batch.path)));
    rows.push({ kind: 'batch', batch, isOpen });
    if (isOpen) {
      jobs.sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state));
      rows.push(...jobs.map(job => ({ kind: 'job' as const, batch, job })));
    }
  }
  return rows;
}

export function rowKey(row: QueueRow): string {
  return row.kind === 'batch' ? row.batch.path : `${row.batch.path}\n${row.job.name}`;
}
