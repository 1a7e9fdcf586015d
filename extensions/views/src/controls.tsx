import type { JSX } from 'preact';

/** The weight of a moving average, from 0 (none) to nearly 1. */
export function SmoothingSlider(props: { value: number; onChange: (weight: number) => void; label: string }): JSX.Element {
  return (
    <label>
      {props.label}{' '}
      <input
        type="range"
        min={0}
        max={0.98}
        step={0.02}
        value={props.value}
        onInput={event => props.onChange(Number(event.currentTarget.value))}
      />
    </label>
  );
}
