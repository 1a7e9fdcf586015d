import type { JSX } from 'preact';

/** A field whose words choose what is shown. */
export function SearchField(props: {
  value: string;
  onInput: (text: string) => void;
  /** For a screen reader. */
  label: string;
  placeholder: string;
}): JSX.Element {
  return (
    <input
      class="marlnb-search"
      type="search"
      placeholder={props.placeholder}
      aria-label={props.label}
      value={props.value}
      onInput={event => props.onInput(event.currentTarget.value)}
    />
  );
}
