import { Curves, type Curve, formatNumber, printable, SmoothingSlider } from '@marlnb/views';
import type { ComponentChild, JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { CommandIDs } from './commandIds';
import { attachCell, comparisonCells } from './comparisonNotebook';
import { valueText } from './configuration';
import type { Context } from './context';
import { Live } from './live';
import type { Comparison } from './messages';
import { PreactWidget } from './preactWidget';
import { RunMap } from './runMap';
import { useSignal } from './useSignal';

const INTERVAL_MS = 10_000;

/** A selection of runs: what differs in their settings, their curves over seeds, and what was not averaged. */
export class ComparePage extends PreactWidget {
  constructor(
    private readonly context: Context,
    readonly paths: readonly string[]
  ) {
    super();
    this.addClass('marlnb-lab');
    this.addClass('marlnb-page');
    const { backend } = context;
    this.live = new Live(
      'marlnb:compare',
      () => backend.request<Comparison>('compare', { paths, average_over: this.averageOver }),
      INTERVAL_MS
    );
  }

  override dispose(): void {
    this.live.dispose();
    super.dispose();
  }

  protected content(): ComponentChild {
    const average = (settings: string[]): void => {
      this.averageOver = settings;
      this.live.refresh();
    };
    return <Comparing context={this.context} paths={this.paths} live={this.live} average={average} />;
  }

  protected override onVisible(isVisible: boolean): void {
    this.live.setVisible(isVisible);
  }

  private averageOver = ['seed'];
  private readonly live: Live<Comparison>;
}

function Comparing(props: {
  context: Context;
  paths: readonly string[];
  live: Live<Comparison>;
  average: (settings: string[]) => void;
}): JSX.Element {
  const { context, paths, live } = props;
  const { commands, trans } = context;
  useSignal(live.changed);
  const [averaged, setAveraged] = useState<readonly string[]>(['seed']);
  const [smoothing, setSmoothing] = useState(0);
  const [isMapped, setMapped] = useState(false);
  const answer = live.answer;
  const curves = useMemo(() => (answer?.curves ?? []).map(asCurve), [answer]);
  if (!answer) {
    return (
      <p class="marlnb-notice" role={live.error ? 'alert' : 'status'}>
        {live.error || trans.__('Comparing the runs…')}
      </p>
    );
  }
  const toggle = (setting: string): void => {
    const next = averaged.includes(setting) ? averaged.filter(each => each !== setting) : [...averaged, setting];
    setAveraged(next);
    props.average(next);
  };
  return (
    <>
      <div class="marlnb-page-header">
        <h1>{trans.__('%1 runs', paths.length)}</h1>
        <div class="marlnb-actions" role="toolbar" aria-label={trans.__('Actions')}>
          <button onClick={() => void commands.execute(CommandIDs.newNotebook, { cells: comparisonCells(paths, averaged) })}>
            {trans.__('Open as a notebook')}
          </button>
          <button
            title={trans.__('Compares the hidden states of their agents on shared observations')}
            aria-expanded={isMapped}
            onClick={() => setMapped(!isMapped)}
          >
            {trans.__('Map by hidden states')}
          </button>
          <button
            title={trans.__('Inserts a cell that shows these runs live in one chart')}
            onClick={() => void commands.execute(CommandIDs.insertCell, { source: attachCell(paths) })}
          >
            {trans.__('Attach in notebook')}
          </button>
        </div>
        {live.error && (
          <p class="marlnb-error" role="alert">
            {live.error}
          </p>
        )}
        <ul class="marlnb-refusals" aria-label={trans.__('Not compared')}>
          {[...answer.refusals, ...answer.runs.map(run => run.problem).filter(Boolean)].map(text => (
            <li key={text}>{printable(text)}</li>
          ))}
        </ul>
      </div>
      {isMapped && <RunMap context={context} paths={paths} />}
      {curves.length > 0 && (
        <Curves
          curves={curves}
          title={trans.__('Mean return of one agent: IQM over runs, 95% bootstrap interval')}
          height={320}
          smoothing={smoothing}
        />
      )}
      <div class="marlnb-controls">
        <SmoothingSlider value={smoothing} onChange={setSmoothing} label={trans.__('Smoothing')} />
      </div>
      <Scores context={context} answer={answer} />
      {answer.tests.length > 0 && <Tests context={context} tests={answer.tests} />}
      <Differences context={context} answer={answer} averaged={averaged} toggle={toggle} />
    </>
  );
}

function asCurve(curve: Comparison['curves'][number]): Curve {
  const count = curve.runs.length;
  const { x, value, low, high } = curve;
  return { name: count > 1 ? `${curve.label} (${count} runs)` : curve.label, x, y: value, low, high };
}

function Scores({ context, answer }: { context: Context; answer: Comparison }): JSX.Element {
  const { trans } = context;
  return (
    <details class="marlnb-section" open>
      <summary>{trans.__('Scores over the last tenth of the training')}</summary>
      <div class="marlnb-scroll" tabIndex={0}>
        <table class="marlnb-facts-table">
          <thead>
            <tr>
              <th scope="col">{trans.__('Setting')}</th>
              <th scope="col">{trans.__('Runs')}</th>
              <th scope="col">{trans.__('IQM')}</th>
              <th scope="col">{trans.__('95% interval')}</th>
            </tr>
          </thead>
          <tbody>
            {answer.curves.map(({ label, runs, score: [value, low, high] }, index) => (
              <tr key={`${index} ${label}`}>
                <th scope="row">{printable(label)}</th>
                <td>{runs.length}</td>
                <td>{formatNumber(value)}</td>
                <td>
                  {low === null || high === null ? trans.__('one run') : trans.__('%1 to %2', formatNumber(low), formatNumber(high))}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

/** How surely a run of one setting has a higher score than a run of another. */
function Tests({ context, tests }: { context: Context; tests: Comparison['tests'] }): JSX.Element {
  const { trans } = context;
  return (
    <details class="marlnb-section" open>
      <summary>{trans.__('Tests of these scores')}</summary>
      <div class="marlnb-scroll" tabIndex={0}>
        <table class="marlnb-facts-table">
          <thead>
            <tr>
              <th scope="col">{trans.__('Setting')}</th>
              <th scope="col">{trans.__('Against')}</th>
              <th scope="col">{trans.__('Probability of a higher score')}</th>
              <th scope="col">{trans.__('95% interval')}</th>
              <th scope="col" title={trans.__('Mann-Whitney test, two-sided, corrected for the number of tests (Holm)')}>
                p
              </th>
            </tr>
          </thead>
          <tbody>
            {tests.map(({ better, worse, probability: [value, low, high], p }, index) => (
              <tr key={`${index} ${better}`}>
                <th scope="row">{printable(better)}</th>
                <td>{printable(worse)}</td>
                <td>{formatNumber(value)}</td>
                <td>{trans.__('%1 to %2', formatNumber(low), formatNumber(high))}</td>
                <td>{Number(p.toPrecision(2))}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

function Differences(props: {
  context: Context;
  answer: Comparison;
  averaged: readonly string[];
  toggle: (setting: string) => void;
}): JSX.Element {
  const { trans } = props.context;
  const { choices, differences, runs } = props.answer;
  const settings = [...new Set([...Object.keys(differences), ...props.averaged])];
  const readable = runs.filter(run => !run.problem);
  return (
    <details class="marlnb-section" open>
      <summary>
        {trans.__('Settings that differ')} <span class="marlnb-count">{Object.keys(differences).length}</span>
      </summary>
      <div class="marlnb-scroll" tabIndex={0}>
        <table class="marlnb-facts-table">
          <thead>
            <tr>
              <th scope="col">{trans.__('Setting')}</th>
              <th scope="col">{trans.__('Average over')}</th>
              {readable.map(({ path, name }) => (
                <th key={path} scope="col" title={path}>
                  {printable(name)}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {settings.map(setting => (
              <tr key={setting}>
                <th scope="row">{setting}</th>
                <td>
                  {(choices.includes(setting) || props.averaged.includes(setting)) && (
                    <input
                      type="checkbox"
                      aria-label={trans.__('average over %1', setting)}
                      checked={props.averaged.includes(setting)}
                      onChange={() => props.toggle(setting)}
                    />
                  )}
                </td>
                {readable.map(({ path }) => (
                  <td key={path}>{valueText(differences[setting]?.[path])}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}
