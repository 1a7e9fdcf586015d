import type { ComponentChild, JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { CommandIDs } from './commandIds';
import type { Context } from './context';
import { absolute } from './folders';
import { Live, messageOf } from './live';
import type { BatchAnswer, BatchForm, QueueAnswer, QueuedBatch } from './messages';
import { PreactWidget } from './preactWidget';
import { INTERVAL_MS } from './queue/rows';
import { SubmittedJobs } from './queue/submittedJobs';

/** A notebook's parameters as a form: the plan and script of `marlnb batch`, its submission, and then its jobs. */
export class SubmitPage extends PreactWidget {
  constructor(
    private readonly context: Context,
    private readonly path: string,
    private readonly save: () => Promise<void>
  ) {
    super();
    this.addClass('marlnb-lab');
    this.addClass('marlnb-page');
    const ask = async (): Promise<QueuedBatch | null> => {
      const args = { folders: [this.batch.replace(/\/[^/]*$/, '')], fresh: this.live.answer?.path !== this.batch };
      const { batches } = await context.backend.request<QueueAnswer>('queue', args);
      return batches.find(({ path: folder }) => folder === this.batch) ?? null;
    };
    this.live = new Live('marlnb:submitted', ask, INTERVAL_MS);
  }

  override dispose(): void {
    this.live.dispose();
    super.dispose();
  }

  protected content(): ComponentChild {
    const onSubmitted = (batch: string): void => {
      this.batch = batch;
      this.live.setVisible(this.isVisible);
    };
    return (
      <Submit context={this.context} path={this.path} save={this.save} live={this.live} onSubmitted={onSubmitted} />
    );
  }

  protected override onVisible(isVisible: boolean): void {
    this.live.setVisible(isVisible && this.batch !== '');
  }

  /** The folder of the batch that was submitted here last; empty: none yet. */
  private batch = '';
  private readonly live: Live<QueuedBatch | null>;
}

interface Choice {
  values: Record<string, string>;
  profile: string;
  /** Of the profile's keys that have a field. */
  resources: Record<string, string>;
  /** Other keys of the profile, one `KEY=VALUE` per line. */
  settings: string;
  out: string;
}

function Submit(props: {
  context: Context;
  path: string;
  save: () => Promise<void>;
  live: Live<QueuedBatch | null>;
  onSubmitted: (batch: string) => void;
}): JSX.Element {
  const { context, path, save, live, onSubmitted } = props;
  const { backend, commands, trans } = context;
  const [form, setForm] = useState<BatchForm | null>(null);
  const [choice, setChoice] = useState<Choice>({ values: {}, profile: 'local', resources: {}, settings: '', out: '' });
  const latest = useRef(choice);
  latest.current = choice;
  const [answer, setAnswer] = useState<BatchAnswer | null>(null);
  const [busy, setBusy] = useState('');
  const [error, setError] = useState('');

  /** Saves the notebook first, so that what is checked and sent is what the person sees. */
  const ask = async (message: string, request: (notebook: string) => Promise<void>): Promise<void> => {
    setBusy(message);
    try {
      await save();
      await backend.start();
      await request(absolute(backend.folder, path));
      setError('');
    } catch (problem) {
      setError(messageOf(problem));
    }
    setBusy('');
  };
  const read = (): Promise<void> =>
    ask(trans.__('Reading the parameters…'), async notebook => {
      setForm(await backend.request<BatchForm>('batch_form', { notebook }));
      setAnswer(shown => (shown?.batch ? shown : null)); // the notebook was planned as it was before
    });
  useEffect(() => void read(), [path]);
  const send = (submit: boolean): Promise<void> =>
    ask(submit ? trans.__('Submitting…') : trans.__('Checking the plan…'), async notebook => {
      const next = await backend.request<BatchAnswer>('batch', { notebook, ...batchArguments(choice, form), submit });
      if (submit || choice === latest.current) {
        setAnswer(next); // a plan of other values is none of these
      }
      if (next.batch) {
        onSubmitted(next.batch);
      }
    });
  const change = (changes: Partial<Choice>): void => {
    setChoice({ ...choice, ...changes });
    setAnswer(null);
  };
  const isPlanned = answer?.ok === true && !answer.batch;
  return (
    <>
      <div class="marlnb-page-header">
        <h1>{trans.__('Submit %1', path)}</h1>
        {error && (
          <p class="marlnb-error" role="alert">
            {error}
          </p>
        )}
      </div>
      {form && <Form context={context} form={form} choice={choice} change={change} />}
      <div class="marlnb-actions" role="toolbar" aria-label={trans.__('Actions')}>
        <button disabled={!form || busy !== ''} onClick={() => void send(false)}>
          {trans.__('Show plan and script')}
        </button>
        <button class="marlnb-primary" disabled={!isPlanned || busy !== ''} onClick={() => void send(true)}>
          {trans.__('Submit')}
        </button>
        <button disabled={busy !== ''} onClick={() => void read()}>
          {trans.__('Read the parameters again')}
        </button>
        <span role="status">{busy}</span>
      </div>
      {answer && (
        <section aria-label={trans.__('Plan')}>
          <p>
            <code>{answer.command}</code>{' '}
            <button onClick={() => void commands.execute(CommandIDs.copy, { text: answer.command })}>
              {trans.__('Copy command')}
            </button>
          </p>
          <pre class={answer.ok ? 'marlnb-plan' : 'marlnb-plan marlnb-error'} tabIndex={0}>
            {answer.output}
          </pre>
          {answer.batch && (
            <>
              <p>
                {trans.__('The jobs run on a copy of the notebook.')}{' '}
                <button onClick={() => void commands.execute(CommandIDs.showQueue)}>{trans.__('Show the queue')}</button>{' '}
                <button onClick={() => void commands.execute(CommandIDs.showFolder, { path: answer.batch })}>
                  {trans.__('Show folder')}
                </button>
              </p>
              <SubmittedJobs context={context} live={live} />
            </>
          )}
        </section>
      )}
    </>
  );
}

/** The arguments of `marlnb batch`: parameters of the notebook and keys of the profile that were filled in. */
function batchArguments(
  choice: Choice,
  form: BatchForm | null
): { parameters: string[]; on: string; settings: string[]; out: string } {
  const filled = (values: Record<string, string>): string[] =>
    Object.entries(values).flatMap(([name, value]) => (value.trim() ? [`${name}=${value.trim()}`] : []));
  const values = (form?.parameters ?? []).map(({ name }): [string, string] => [name, choice.values[name] ?? '']);
  const others = choice.settings.split('\n').map(line => line.trim());
  return {
    parameters: filled(Object.fromEntries(values)),
    on: choice.profile,
    settings: [...filled(choice.resources), ...others.filter(Boolean)],
    out: choice.out.trim()
  };
}

function Form(props: {
  context: Context;
  form: BatchForm;
  choice: Choice;
  change: (changes: Partial<Choice>) => void;
}): JSX.Element {
  const { form, choice, change } = props;
  const { trans } = props.context;
  const isSupported = (name: string, profile: string): boolean => !form.unsupported[profile]?.includes(name);
  const changeProfile = (profile: string): void => {
    const kept = Object.entries(choice.resources).filter(([name]) => isSupported(name, profile));
    change({ profile, resources: Object.fromEntries(kept) });
  };
  return (
    <div class="marlnb-form">
      {form.parameters.length === 0 && (
        <p class="marlnb-notice">
          {trans.__('The notebook has no parameters: tag a cell `parameters` and assign them there, as seed = 0.')}
        </p>
      )}
      {form.parameters.map(({ name, takes, code, help, required }) => (
        <label key={name}>
          <span>{name}</span>
          <input
            value={choice.values[name] ?? ''}
            placeholder={required ? trans.__('required') : code}
            onInput={event => change({ values: { ...choice.values, [name]: event.currentTarget.value } })}
          />
          <small>{[help, takes].filter(Boolean).join(' · ')}</small>
        </label>
      ))}
      <p class="marlnb-notice">{trans.__('Several values make a sweep: 0..4, or a,b. Empty fields keep the default.')}</p>
      <label>
        <span>{trans.__('Profile')}</span>
        <select value={choice.profile} onChange={event => changeProfile(event.currentTarget.value)}>
          {Object.keys(form.profiles).map(name => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      {form.resources
        .filter(({ name }) => isSupported(name, choice.profile))
        .map(({ name, help }) => (
          <label key={name}>
            <span>{name}</span>
            <input
              value={choice.resources[name] ?? ''}
              placeholder={form.profiles[choice.profile]?.[name] ?? ''}
              onInput={event => change({ resources: { ...choice.resources, [name]: event.currentTarget.value } })}
            />
            <small>{help}</small>
          </label>
        ))}
      <label>
        <span>{trans.__('Other keys')}</span>
        <textarea
          rows={2}
          value={choice.settings}
          placeholder={'partition=gpu\naccount=abc'}
          onInput={event => change({ settings: event.currentTarget.value })}
        />
        <small>{trans.__('of the profile, one per line')}</small>
      </label>
      <label>
        <span>{trans.__('Folder')}</span>
        <input
          value={choice.out}
          placeholder={trans.__('runs/<notebook>-batch')}
          onInput={event => change({ out: event.currentTarget.value })}
        />
      </label>
    </div>
  );
}
