import type { TranslationBundle } from '@jupyterlab/translation';

/** The states that runs and jobs share, in words. */
export function endWords(trans: TranslationBundle): Record<'complete' | 'failed' | 'interrupted' | 'stopped', string> {
  return {
    complete: trans.__('complete'),
    failed: trans.__('failed'),
    interrupted: trans.__('interrupted'),
    stopped: trans.__('stopped')
  };
}
