/** The words that views show by themselves. An application that is translated replaces them once, before it draws. */
export const texts = {
  noPoints: 'no points yet',
  curves: 'curves',
  hide: 'hide',
  show: 'show',
  at: 'at',
  to: 'to',
  marked: 'marked',
  keys: 'Arrow keys read values.'
};

export function setTexts(words: Partial<typeof texts>): void {
  Object.assign(texts, words);
}
