/**
 * Keeps keys without Ctrl, Alt or Meta from JupyterLab's shortcuts while the element has the focus; Ctrl+S still saves.
 * Returns what ends it.
 */
export function keepPlainKeys(element: HTMLElement): () => void {
  const onKey = (event: KeyboardEvent): void => {
    element.toggleAttribute('data-lm-suppress-shortcuts', !isModified(event));
  };
  window.addEventListener('keydown', onKey, true); // before JupyterLab, which looks for the attribute at the document
  return () => window.removeEventListener('keydown', onKey, true);
}

export function isModified(event: Pick<KeyboardEvent, 'ctrlKey' | 'altKey' | 'metaKey'>): boolean {
  return event.ctrlKey || event.altKey || event.metaKey;
}
