import type { TranslationBundle } from '@jupyterlab/translation';
import type { JSX } from 'preact';
import type { GroupBy } from './runRows';

/** A choice of what runs are grouped by. */
export function GroupSelect(props: {
  value: GroupBy;
  onChange: (group: GroupBy) => void;
  trans: TranslationBundle;
}): JSX.Element {
  const { trans } = props;
  const groups: [GroupBy, string][] = [
    ['folder', trans.__('folder (batch)')],
    ['env', trans.__('environment')],
    ['algorithm', trans.__('algorithm')],
    ['league', trans.__('league')],
    ['evolution', trans.__('evolution (population)')],
    ['state', trans.__('state')],
    ['tags', trans.__('tags')],
    ['', trans.__('nothing')]
  ];
  return (
    <label class="marlnb-group-select">
      {trans.__('Group by')}{' '}
      <select value={props.value} onChange={event => props.onChange(event.currentTarget.value as GroupBy)}>
        {groups.map(([key, title]) => (
          <option key={key} value={key}>
            {title}
          </option>
        ))}
      </select>
    </label>
  );
}
