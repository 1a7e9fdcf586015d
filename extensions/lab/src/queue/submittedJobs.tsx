import type { JSX } from 'preact';
import { CommandIDs } from '../commandIds';
import type { Context } from '../context';
import type { Live } from '../live';
import type { QueuedBatch } from '../messages';
import { useSignal } from '../useSignal';
import { jobLine } from './rows';

const MAX_JOBS = 50;

/** The jobs of a batch with their states, pages and executed notebooks; of very many, the first. */
export function SubmittedJobs({ context, live }: { context: Context; live: Live<QueuedBatch | null> }): JSX.Element {
  const { commands, trans } = context;
  useSignal(live.changed);
  const batch = live.answer;
  if (!batch) {
    return (
      <p class="marlnb-notice" role={live.error ? 'alert' : 'status'}>
        {live.error || trans.__('Reading the jobs…')}
      </p>
    );
  }
  return (
    <table class="marlnb-facts-table" aria-label={trans.__('Jobs')}>
      <tbody>
        {batch.jobs.slice(0, MAX_JOBS).map(job => (
          <tr key={job.name} data-state={job.state}>
            <th scope="row">{job.name}</th>
            <td>{jobLine(job, trans)}</td>
            <td>
              <button onClick={() => void commands.execute(CommandIDs.openJob, { batch: batch.path, name: job.name })}>
                {trans.__('Open the job')}
              </button>{' '}
              <button
                disabled={!job.notebook}
                onClick={() => void commands.execute(CommandIDs.openFile, { path: job.notebook })}
              >
                {trans.__('Open executed notebook')}
              </button>
            </td>
          </tr>
        ))}
      </tbody>
      {batch.jobs.length > MAX_JOBS && (
        <caption>{trans.__('%1 more jobs are in the queue.', batch.jobs.length - MAX_JOBS)}</caption>
      )}
    </table>
  );
}
