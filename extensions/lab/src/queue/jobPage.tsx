import type { ComponentChild, JSX } from 'preact';
import { CommandIDs } from '../commandIds';
import type { Context } from '../context';
import { Live } from '../live';
import type { JobAnswer } from '../messages';
import { PreactWidget } from '../preactWidget';
import { useSignal } from '../useSignal';
import { canCancel, canRunAgain, jobLine } from './rows';

const INTERVAL_MS = 3000;

/** A job's page: its state, output, why it failed and the command that runs it again. */
export class JobPage extends PreactWidget {
  constructor(
    private readonly context: Context,
    readonly batch: string,
    readonly jobName: string
  ) {
    super();
    this.addClass('marlnb-lab');
    this.addClass('marlnb-page');
    const ask = (): Promise<JobAnswer> => context.backend.request<JobAnswer>('job', { batch, name: jobName });
    this.live = new Live('marlnb:job', ask, INTERVAL_MS);
  }

  override dispose(): void {
    this.live.dispose();
    super.dispose();
  }

  protected content(): ComponentChild {
    return <Page context={this.context} batch={this.batch} name={this.jobName} live={this.live} />;
  }

  protected override onVisible(isVisible: boolean): void {
    this.live.setVisible(isVisible);
  }

  private readonly live: Live<JobAnswer>;
}

function Page(props: { context: Context; batch: string; name: string; live: Live<JobAnswer> }): JSX.Element {
  const { context, batch, name, live } = props;
  const { trans } = context;
  useSignal(live.changed);
  const answer = live.answer;
  if (!answer) {
    return (
      <p class="marlnb-notice" role={live.error ? 'alert' : 'status'}>
        {live.error || trans.__('Reading the job…')}
      </p>
    );
  }
  return (
    <>
      <div class="marlnb-page-header" data-state={answer.job.state}>
        <h1>{name}</h1>
        <p>
          <span class="marlnb-dot" aria-hidden="true" /> {jobLine(answer.job, trans)}
          {answer.job.id ? ` · ${answer.job.id}` : ''}
          {answer.job.attempt > 1 ? ` · ${trans.__('attempt %1', answer.job.attempt)}` : ''}
        </p>
        <p>{batch}</p>
        <JobActions context={context} batch={batch} answer={answer} onDone={() => live.refresh()} />
        {[live.error, answer.problem].filter(Boolean).map(problem => (
          <p key={problem} class="marlnb-error" role="alert">
            {problem}
          </p>
        ))}
      </div>
      {answer.failure && (
        <details class="marlnb-section" open>
          <summary>{trans.__('Why it ended')}</summary>
          <pre tabIndex={0}>{answer.failure}</pre>
        </details>
      )}
      <details class="marlnb-section" open>
        <summary>{trans.__('Output')}</summary>
        <pre tabIndex={0}>{answer.output || trans.__('It has printed nothing yet.')}</pre>
      </details>
    </>
  );
}

function JobActions(props: {
  context: Context;
  batch: string;
  answer: JobAnswer;
  onDone: () => void;
}): JSX.Element {
  const { context, batch, answer, onDone } = props;
  const { commands, trans } = context;
  const { job, folder, run, rerun_command: rerun } = answer;
  const act = (command: string) => () => void commands.execute(command, { batch, jobs: [job.name] }).then(onDone);
  return (
    <div class="marlnb-actions" role="toolbar" aria-label={trans.__('Actions')}>
      {canCancel([job]) && <button onClick={act(CommandIDs.cancelJobs)}>{trans.__('Cancel…')}</button>}
      {canRunAgain([job]) && <button onClick={act(CommandIDs.requeueJobs)}>{trans.__('Run again')}</button>}
      <button title={rerun} onClick={() => void commands.execute(CommandIDs.copy, { text: rerun })}>
        {trans.__('Copy command that runs it again')}
      </button>
      <button disabled={!run} onClick={() => void commands.execute(CommandIDs.openRun, { path: run })}>
        {trans.__('Open its run')}
      </button>
      <button disabled={!job.notebook} onClick={() => void commands.execute(CommandIDs.openFile, { path: job.notebook })}>
        {trans.__('Open executed notebook')}
      </button>
      <button onClick={() => void commands.execute(CommandIDs.showFolder, { path: folder })}>
        {trans.__('Show folder')}
      </button>
    </div>
  );
}
