import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { Context } from './context';
import { messageOf } from './live';
import type { RunSummary } from './messages';

/** Tags and a note about a run, stored in its folder when the field is left or Enter is pressed. */
export function Tags(props: { context: Context; run: RunSummary; onDone: () => void }): JSX.Element {
  const { context, run, onDone } = props;
  const { backend, trans } = context;
  const [tags, setTags] = useState(run.tags.join(', '));
  const [note, setNote] = useState(run.note);
  const [error, setError] = useState('');
  useEffect(() => setTags(run.tags.join(', ')), [run.tags.join('\n')]);
  useEffect(() => setNote(run.note), [run.note]);
  const save = async (): Promise<void> => {
    const list = tags.split(',').map(tag => tag.trim());
    try {
      await backend.request('annotate', { path: run.path, tags: list.filter(Boolean), note });
      setError('');
      onDone();
    } catch (problem) {
      setError(messageOf(problem));
    }
  };
  return (
    <div class="marlnb-tags">
      <label>
        {trans.__('Tags')}{' '}
        <input
          value={tags}
          placeholder={trans.__('baseline, paper')}
          onInput={event => setTags(event.currentTarget.value)}
          onChange={() => void save()}
        />
      </label>
      <label>
        {trans.__('Note')}{' '}
        <textarea
          rows={2}
          value={note}
          onInput={event => setNote(event.currentTarget.value)}
          onChange={() => void save()}
        />
      </label>
      {error && (
        <p class="marlnb-error" role="alert">
          {error}
        </p>
      )}
    </div>
  );
}
