import type { TranslationBundle } from '@jupyterlab/translation';
import type { JSX } from 'preact';
import type { RunSummary } from './messages';
import { progress } from './runRows';

/** How much of a training run is done, as a thin bar. */
export function Progress({ run, trans }: { run: RunSummary; trans: TranslationBundle }): JSX.Element | null {
  const share = progress(run);
  return share === null ? null : <progress class="marlnb-progress" value={share} max={1} aria-label={trans.__('progress')} />;
}
