import { showErrorMessage } from '@jupyterlab/apputils';
import { Curves, type Curve, formatBytes, formatCount, formatNumber, printable, SmoothingSlider } from '@marlnb/views';
import type { ComponentChild, ComponentChildren, JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { CommandIDs } from './commandIds';
import { flatten } from './configuration';
import type { Context } from './context';
import { Live, messageOf } from './live';
import type { Action, RunCode, RunPageAnswer, Series } from './messages';
import { PreactWidget } from './preactWidget';
import { Progress } from './progress';
import { isAlive, stateLine, subject } from './runRows';
import { SearchField } from './searchField';
import { Tags } from './tags';
import { useSignal } from './useSignal';

const INTERVAL_MS = 2000;

/** A run's page: curves, settings, events, checkpoints, recordings, and what can be done with them. */
export class RunPage extends PreactWidget {
  constructor(
    private readonly context: Context,
    readonly path: string
  ) {
    super();
    this.addClass('marlnb-lab');
    this.addClass('marlnb-page');
    const { backend } = context;
    this.live = new Live('marlnb:run', () => backend.request<RunPageAnswer>('run', { path }), INTERVAL_MS);
  }

  override dispose(): void {
    this.live.dispose();
    super.dispose();
  }

  protected content(): ComponentChild {
    return <Page context={this.context} path={this.path} live={this.live} />;
  }

  protected override onVisible(isVisible: boolean): void {
    this.live.setVisible(isVisible);
  }

  private readonly live: Live<RunPageAnswer>;
}

interface PageProps {
  context: Context;
  path: string;
  live: Live<RunPageAnswer>;
}

function Page({ context, path, live }: PageProps): JSX.Element {
  useSignal(live.changed);
  const { trans } = context;
  const page = live.answer;
  if (!page) {
    return (
      <p class="marlnb-notice" role={live.error ? 'alert' : 'status'}>
        {live.error || trans.__('Reading the run…')}
      </p>
    );
  }
  const run = page.summary;
  return (
    <>
      <div class="marlnb-page-header" data-state={run.state}>
        <h1>{printable(run.name)}</h1>
        <p>
          <span class="marlnb-dot" aria-hidden="true" />{' '}
          {[stateLine(run, trans), subject(run, trans), run.host].filter(Boolean).join(' · ')}
        </p>
        {isAlive(run) && <Progress run={run} trans={trans} />}
        <Actions context={context} path={path} page={page} onDone={() => live.refresh()} />
        {[...new Set([live.error, run.problem, ...page.problems])].filter(Boolean).map(problem => (
          <p key={problem} class="marlnb-error" role="alert">
            {problem}
          </p>
        ))}
      </div>
      {page.curves && <RunCurves context={context} curves={page.curves} />}
      <Tags context={context} run={run} onDone={() => live.refresh()} />
      <Recordings
        context={context}
        path={path}
        recordings={page.recordings ?? []}
        canRecord={(page.checkpoints ?? []).length > 0}
      />
      <Checkpoints context={context} checkpoints={page.checkpoints ?? []} />
      {page.experiment && <Configuration context={context} experiment={page.experiment} />}
      <Section title={trans.__('Events')} count={page.events?.length ?? 0}>
        <pre tabIndex={0}>{page.events?.join('\n')}</pre>
      </Section>
    </>
  );
}

function Actions(props: { context: Context; path: string; page: RunPageAnswer; onDone: () => void }): JSX.Element {
  const { context, path, page, onDone } = props;
  const { commands, trans } = context;
  const run = page.summary;
  const alive = isAlive(run);
  const act = (action: Action) => () => void commands.execute(CommandIDs.act, { path, action }).then(onDone);
  const withCode = (use: (code: RunCode) => unknown) => () => void askCode(context, path, use);
  const isPausing = run.state === 'paused' || page.requests.includes('pause');
  return (
    <div class="marlnb-actions" role="toolbar" aria-label={trans.__('Actions')}>
      {alive && isPausing && <button onClick={act('continue')}>{trans.__('Continue')}</button>}
      {alive && !isPausing && <button onClick={act('pause')}>{trans.__('Pause')}</button>}
      {alive && <button onClick={act('stop')}>{trans.__('Stop')}</button>}
      {['created', 'interrupted', 'stopped', 'failed'].includes(run.state) && (
        <button onClick={act('resume')}>{run.state === 'created' ? trans.__('Start') : trans.__('Resume')}</button>
      )}
      <button
        title={trans.__('Inserts a cell that shows this run live')}
        onClick={withCode(({ attach }) => commands.execute(CommandIDs.insertCell, { source: attach }))}
      >
        {trans.__('Attach in notebook')}
      </button>
      <button onClick={withCode(({ command }) => commands.execute(CommandIDs.copy, { text: command }))}>
        {trans.__('Copy command')}
      </button>
      <button onClick={withCode(({ code }) => commands.execute(CommandIDs.copy, { text: code }))}>
        {trans.__('Copy code')}
      </button>
      <button onClick={() => void commands.execute(CommandIDs.showFolder, { path })}>{trans.__('Show folder')}</button>
      <button disabled={alive} onClick={() => void commands.execute(CommandIDs.deleteRuns, { paths: [path] })}>
        {trans.__('Delete…')}
      </button>
    </div>
  );
}

/** Asks for a run's commands and cells, which an unreadable run has not. */
async function askCode({ backend, trans }: Context, path: string, use: (code: RunCode) => unknown): Promise<void> {
  try {
    await use(await backend.request<RunCode>('code', { path }));
  } catch (error) {
    await showErrorMessage(trans.__('This was not done'), messageOf(error));
  }
}

function RunCurves(props: { context: Context; curves: NonNullable<RunPageAnswer['curves']> }): JSX.Element {
  const { trans } = props.context;
  const { returns, numbers } = props.curves;
  const [hidden, setHidden] = useState<readonly string[] | null>(null);
  const [metric, setMetric] = useState('');
  const [smoothing, setSmoothing] = useState(0);
  const shown = useMemo(() => named(returns), [returns]);
  const chosen = useMemo(() => (numbers[metric] ? named({ [metric]: numbers[metric] }) : []), [numbers, metric]);
  return (
    <section aria-label={trans.__('Curves')}>
      {shown.length > 0 ? (
        <Curves
          curves={shown}
          title={trans.__('Mean return of one agent')}
          smoothing={smoothing}
          hidden={hidden ?? props.curves.hidden}
          onHide={setHidden}
        />
      ) : (
        <p class="marlnb-notice">{trans.__('No episode has ended yet.')}</p>
      )}
      <div class="marlnb-controls">
        <SmoothingSlider value={smoothing} onChange={setSmoothing} label={trans.__('Smoothing')} />
        <label>
          {trans.__('Also draw')}{' '}
          <select value={metric} onChange={event => setMetric(event.currentTarget.value)}>
            <option value="">{trans.__('nothing')}</option>
            {Object.keys(numbers).map(name => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
      </div>
      {chosen.length > 0 && <Curves curves={chosen} title={metric} smoothing={smoothing} height={180} />}
    </section>
  );
}

function named(series: Record<string, Series>): Curve[] {
  return Object.entries(series).map(([name, { x, y }]) => ({ name, x, y }));
}

function Section(props: { title: string; count: number; children: ComponentChildren; open?: boolean }): JSX.Element {
  return (
    <details class="marlnb-section" open={props.open ?? false}>
      <summary>
        {props.title} <span class="marlnb-count">{props.count}</span>
      </summary>
      {props.children}
    </details>
  );
}

function Recordings(props: {
  context: Context;
  path: string;
  recordings: NonNullable<RunPageAnswer['recordings']>;
  canRecord: boolean;
}): JSX.Element {
  const { commands, trans } = props.context;
  const isEmpty = props.recordings.length === 0;
  const insert = (source: (code: RunCode) => string | undefined): Promise<void> =>
    askCode(props.context, props.path, code => commands.execute(CommandIDs.insertCell, { source: source(code) ?? '' }));
  return (
    <Section title={trans.__('Recordings')} count={props.recordings.length} open={!isEmpty || props.canRecord}>
      {isEmpty && props.canRecord && (
        <button
          title={trans.__('Inserts a cell that records some episodes and opens them in the microscope')}
          onClick={() => void insert(({ record }) => record)}
        >
          {trans.__('Record and open in the microscope')}
        </button>
      )}
      <table class="marlnb-facts-table">
        <tbody>
          {props.recordings.map(each => (
            <tr key={each.path}>
              <th scope="row">{each.name}</th>
              <td>{formatBytes(each.size_bytes)}</td>
              <td>
                <button onClick={() => void insert(({ microscope }) => microscope[each.name])}>{trans.__('Open in the microscope')}</button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Section>
  );
}

function Checkpoints(props: {
  context: Context;
  checkpoints: NonNullable<RunPageAnswer['checkpoints']>;
}): JSX.Element {
  const { trans } = props.context;
  return (
    <Section title={trans.__('Checkpoints')} count={props.checkpoints.length}>
      <table class="marlnb-facts-table">
        <tbody>
          {props.checkpoints.map(each => (
            <tr key={each.path}>
              <th scope="row">{each.iteration}</th>
              <td>{each.frames ? trans.__('%1 frames', formatCount(each.frames)) : ''}</td>
              <td>{formatBytes(each.size_bytes)}</td>
              <td class={each.problem ? 'marlnb-error' : ''}>
                {each.problem ??
                  Object.entries(each.returns ?? {})
                    .map(([name, value]) => `${name} ${formatNumber(value)}`)
                    .join(', ')}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Section>
  );
}

function Configuration(props: { context: Context; experiment: Record<string, unknown> }): JSX.Element {
  const { trans } = props.context;
  const [search, setSearch] = useState('');
  const settings = useMemo(() => flatten(props.experiment), [props.experiment]);
  const shown = settings.filter(([key, value]) => `${key} ${value}`.toLowerCase().includes(search.toLowerCase()));
  return (
    <Section title={trans.__('Configuration')} count={settings.length}>
      <SearchField
        value={search}
        onInput={setSearch}
        label={trans.__('Search settings')}
        placeholder={trans.__('Search settings…')}
      />
      <table class="marlnb-facts-table">
        <tbody>
          {shown.map(([key, value]) => (
            <tr key={key}>
              <th scope="row">{key}</th>
              <td>{value}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Section>
  );
}
