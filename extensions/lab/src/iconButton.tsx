import type { LabIcon } from '@jupyterlab/ui-components';
import type { JSX } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';

/** A button as in the toolbars of JupyterLab's own panels: an icon, whose name a screen reader reads. */
export function IconButton(props: {
  icon: LabIcon;
  name: string;
  /** What a longer look says; by default the name. */
  hint?: string;
  disabled?: boolean;
  onClick: () => void;
}): JSX.Element {
  const { icon, name, hint, disabled, onClick } = props;
  const place = useRef<HTMLSpanElement>(null);
  useLayoutEffect(() => {
    if (place.current) {
      icon.element({ container: place.current, stylesheet: 'toolbarButton' });
    }
  }, [icon]);
  return (
    <button class="marlnb-icon-button" aria-label={name} title={hint ?? name} disabled={disabled ?? false} onClick={onClick}>
      <span ref={place} aria-hidden="true" />
    </button>
  );
}
