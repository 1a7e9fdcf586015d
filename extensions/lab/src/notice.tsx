import type { TranslationBundle } from '@jupyterlab/translation';
import type { JSX } from 'preact';
import type { RunsModel } from './runsModel';

/** What a person must know beyond the rows: an error, an empty folder, what was not searched. */
export function Notice(props: {
  model: RunsModel;
  isSearching: boolean;
  shown: number;
  trans: TranslationBundle;
}): JSX.Element | null {
  const { model, trans } = props;
  if (model.error) {
    return (
      <p class="marlnb-notice marlnb-error" role="alert">
        {model.error}
      </p>
    );
  }
  if (model.readAt === 0) {
    return (
      <p class="marlnb-notice" role="status">
        {trans.__('Starting a kernel that reads the runs…')}
      </p>
    );
  }
  const texts = [...model.problems];
  if (props.shown === 0 && model.isComplete) {
    texts.push(
      props.isSearching
        ? trans.__('No run matches.')
        : trans.__('No runs here yet. Train one in a notebook, or with `marlnb train`.')
    );
  } else if (!model.isComplete) {
    texts.push(trans.__('Reading the runs: %1 so far…', model.runs.length));
  }
  return <NoticeLines texts={texts} />;
}

/** A line for each text; nothing without texts. */
export function NoticeLines({ texts }: { texts: readonly string[] }): JSX.Element | null {
  return texts.length > 0 ? (
    <div class="marlnb-notice" role="status">
      {texts.map((text, index) => (
        <div key={index}>{text}</div>
      ))}
    </div>
  ) : null;
}
