import { formatAge, formatClock, formatCount, Sparkline } from '@marlnb/views';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { ComponentChildren } from 'preact';
import type { RunSummary } from './messages';
import { compareNames, type GroupBy, isAlive, lastActive, progress, scoreNumbers, scoreText, shortName, stateWord } from './runRows';

export interface Column {
  key: string;
  title: string;
  /** A CSS grid track. */
  width: string;
  cell: (run: RunSummary) => ComponentChildren;
  /** Order of two runs, ascending; without it a column cannot be sorted. */
  compare?: (a: RunSummary, b: RunSummary) => number;
}

/** Unknown numbers count as the smallest. */
function byNumber(value: (run: RunSummary) => number | null): (a: RunSummary, b: RunSummary) => number {
  return (a, b) => (value(a) ?? -Number.MAX_VALUE) - (value(b) ?? -Number.MAX_VALUE);
}

function byText(value: (run: RunSummary) => string): (a: RunSummary, b: RunSummary) => number {
  return (a, b) => compareNames(value(a), value(b));
}

export function columns(trans: TranslationBundle, group: GroupBy): Column[] {
  const text = (key: string, title: string, width: string, value: (run: RunSummary) => string): Column => ({
    key,
    title,
    width,
    cell: value,
    compare: byText(value)
  });
  return [
    {
      key: 'name',
      title: trans.__('Run'),
      width: 'minmax(160px, 3fr)',
      cell: run => (
        <>
          <span class="marlnb-dot" aria-hidden="true" />
          <span class="marlnb-name marlnb-keep-end">
            <bdi>{shortName(run, group)}</bdi>
          </span>
        </>
      ),
      compare: byText(run => run.name)
    },
    text('state', trans.__('State'), '90px', run => stateWord(run.state, trans)),
    {
      key: 'progress',
      title: trans.__('Frames'),
      width: '120px',
      cell: run => {
        if (run.state === 'unreadable') {
          return '';
        }
        const share = progress(run);
        return `${formatCount(run.frames)}${share !== null && share < 1 ? ` (${Math.floor(100 * share)}%)` : ''}`;
      },
      compare: byNumber(run => run.frames)
    },
    {
      key: 'eta',
      title: trans.__('Left'),
      width: '70px',
      cell: run => (isAlive(run) && run.eta_s !== null ? formatClock(run.eta_s) : ''),
      compare: byNumber(run => run.eta_s)
    },
    { key: 'curve', title: trans.__('Curve'), width: '76px', cell: run => <Sparkline values={run.curve} label={trans.__('return')} /> },
    {
      key: 'score',
      title: trans.__('Exploring return'),
      width: 'minmax(136px, 2fr)',
      cell: run => <span title={scoreText(run)}>{scoreNumbers(run)}</span>,
      compare: byNumber(run => run.score)
    },
    text('algorithm', trans.__('Algorithm'), 'minmax(86px, 1fr)', run => [run.algorithm, run.league, run.evolution].filter(Boolean).join(', ')),
    text('env', trans.__('Environment'), 'minmax(170px, 2fr)', run => run.env),
    {
      key: 'seed',
      title: trans.__('Seed'),
      width: '56px',
      cell: run => run.seed ?? '',
      compare: byNumber(run => run.seed)
    },
    text('host', trans.__('Host'), 'minmax(60px, 1fr)', run => run.host),
    text('tags', trans.__('Tags'), 'minmax(60px, 1fr)', run => run.tags.join(', ')),
    text('note', trans.__('Note'), 'minmax(60px, 1fr)', run => run.note),
    {
      key: 'updated',
      title: trans.__('Updated'),
      width: '76px',
      cell: run => (run.updated === null ? '' : trans.__('%1 ago', formatAge(Date.now() / 1000 - run.updated))),
      compare: byNumber(lastActive)
    }
  ];
}
