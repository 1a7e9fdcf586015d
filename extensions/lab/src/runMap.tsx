import { formatNumber, PointMap, printable } from '@marlnb/views';
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { CommandIDs } from './commandIds';
import { mapCells, pairCells } from './comparisonNotebook';
import type { Context } from './context';
import { messageOf } from './live';
import type { RunMapAnswer } from './messages';

const MAX_PAIRS = 12;
type Pair = RunMapAnswer['pairs'][number];

/** Runs by what their agents represent; two of them open side by side where they differ most. */
export function RunMap({ context, paths }: { context: Context; paths: readonly string[] }): JSX.Element {
  const { backend, commands, trans } = context;
  const [choice, setChoice] = useState<readonly [site: string, agent: string]>(['', '']);
  const [answer, setAnswer] = useState<RunMapAnswer | null>(null);
  const [error, setError] = useState('');
  const [isBusy, setBusy] = useState(true);
  const [chosen, setChosen] = useState<readonly number[]>([]);
  useEffect(() => {
    let isWanted = true;
    setBusy(true);
    setError('');
    const [site, agent] = choice;
    const done = (): void => {
      if (isWanted) {
        setBusy(false);
      }
    };
    void backend
      .request<RunMapAnswer>('run_map', { paths, site, agent })
      .then(
        map => {
          if (isWanted) {
            setAnswer(map);
            const pair = map.pairs.find(each => each.equal_returns) ?? map.pairs[0];
            setChosen(pair ? [pair.a, pair.b] : []);
          }
        },
        (reason: unknown) => {
          if (isWanted) {
            setError(messageOf(reason));
          }
        }
      )
      .finally(done);
    return () => {
      isWanted = false;
    };
  }, [choice[0], choice[1], paths]);
  const open = (pair: Pair): void => {
    if (answer) {
      void commands.execute(CommandIDs.newNotebook, { cells: pairCells(answer, pair), run: true });
    }
  };
  return (
    <section class="marlnb-run-map" aria-label={trans.__('Map by hidden states')} aria-busy={isBusy}>
      <p class="marlnb-notice" role="status">
        {isBusy ? trans.__('The agents of all runs receive the observations of 20 episodes. This takes seconds…') : ''}
      </p>
      {error && (
        <p class="marlnb-error" role="alert">
          {error}
        </p>
      )}
      {answer && (
        <>
          <div class="marlnb-controls">
            <label>
              {trans.__('Units')}{' '}
              <select
                value={JSON.stringify([answer.site, answer.agent])}
                onChange={event => setChoice(JSON.parse(event.currentTarget.value) as [string, string])}
              >
                {answer.choices.map(([site, agent]) => (
                  <option key={`${site} ${agent}`} value={JSON.stringify([site, agent])}>
                    {agent} {site}
                  </option>
                ))}
              </select>
            </label>
            <button onClick={() => void commands.execute(CommandIDs.newNotebook, { cells: mapCells(answer) })}>
              {trans.__('Open the map as a notebook')}
            </button>
          </div>
          <p>{printable(answer.verdict)}</p>
          <ul class="marlnb-refusals">
            {answer.warnings.map(text => (
              <li key={text}>{text}</li>
            ))}
          </ul>
          <PointMap
            points={answer.positions.map(([x, y], k) => ({ name: answer.names[k] ?? '', x, y, value: answer.returns[k] ?? null }))}
            title={trans.__(
              'Near points have similar hidden states; two dimensions show %1% of the distances',
              Math.round(100 * answer.explained)
            )}
            valueLabel={trans.__('return')}
            minSpan={0.5}
            chosen={chosen}
            onChoose={index => setChosen(chosen.includes(index) ? chosen.filter(each => each !== index) : [...chosen.slice(-1), index])}
          />
          <Pairs context={context} answer={answer} chosen={chosen} open={open} />
        </>
      )}
    </section>
  );
}

/** The least similar pairs, and first the one that is chosen in the map. */
function Pairs(props: {
  context: Context;
  answer: RunMapAnswer;
  chosen: readonly number[];
  open: (pair: Pair) => void;
}): JSX.Element {
  const { answer, chosen, open } = props;
  const { trans } = props.context;
  const isChosen = ({ a, b }: Pair): boolean => chosen.length === 2 && chosen.includes(a) && chosen.includes(b);
  const pairs = [...answer.pairs.filter(isChosen), ...answer.pairs.filter(pair => !isChosen(pair)).slice(0, MAX_PAIRS)];
  const name = (index: number): string => printable(answer.names[index] ?? '');
  return (
    <div class="marlnb-scroll" tabIndex={0}>
      <table class="marlnb-facts-table">
        <thead>
          <tr>
            <th scope="col">{trans.__('Two runs')}</th>
            <th scope="col">{trans.__('Returns')}</th>
            <th scope="col" title={trans.__('Linear CKA of the units: 1 if they are alike up to rotation and scale')}>
              {trans.__('Similarity')}
            </th>
            <th scope="col">{trans.__('95% interval')}</th>
            <th scope="col" title={trans.__('The similarity with the episodes of one run in another order')}>
              {trans.__('Control')}
            </th>
            <th scope="col">{trans.__('They differ most at')}</th>
          </tr>
        </thead>
        <tbody>
          {pairs.map(pair => (
            <tr key={`${pair.a} ${pair.b}`} aria-selected={isChosen(pair)}>
              <th scope="row">
                {name(pair.a)}, {name(pair.b)}
              </th>
              <td>{pair.equal_returns ? trans.__('equal') : trans.__('different')}</td>
              <td>{formatNumber(pair.similarity)}</td>
              <td>{trans.__('%1 to %2', formatNumber(pair.low), formatNumber(pair.high))}</td>
              <td>{formatNumber(pair.shuffled)}</td>
              <td>
                <button
                  title={trans.__('Opens the microscope on both networks, which receive the same observations')}
                  onClick={() => open(pair)}
                >
                  {trans.__('Open both at episode %1, step %2', pair.episode, pair.step)}
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
