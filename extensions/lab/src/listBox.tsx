import { VirtualList } from '@marlnb/views';
import type { ComponentChildren, JSX, TargetedKeyboardEvent } from 'preact';

const MOVES: Readonly<Record<string, number>> = {
  ArrowDown: 1,
  ArrowUp: -1,
  PageDown: 10,
  PageUp: -10,
  Home: -Infinity,
  End: Infinity
};

/** Attributes of a row, whatever it shows. */
export interface RowAttributes {
  id: string;
  role: 'treeitem';
  'aria-selected': boolean;
  onClick: () => void;
  style: { height: string };
}

/** Rows, some of which open others, of which one is chosen: by a click, or by keys, of which Enter and space open it. */
export function ListBox<Row>(props: {
  rows: readonly Row[];
  /** In pixels; the same function from one drawing to the next. */
  height: (row: Row) => number;
  label: string;
  /** Of the rows' ids, unique in the page. */
  prefix: string;
  /** The index of the chosen row; -1: none. */
  active: number;
  onMove: (index: number) => void;
  onOpen: (row: Row) => void;
  render: (row: Row, attributes: RowAttributes) => ComponentChildren;
}): JSX.Element {
  const { rows, height, prefix, active, onMove, onOpen } = props;
  const onKeyDown = (event: TargetedKeyboardEvent<HTMLElement>): void => {
    const [move, row] = [MOVES[event.key], rows[active]];
    if (move !== undefined) {
      onMove(Math.max(0, Math.min(rows.length - 1, active + move)));
    } else if (event.key === 'Enter' || event.key === ' ') {
      if (row) {
        onOpen(row);
      }
    } else {
      return;
    }
    event.preventDefault();
  };
  return (
    <VirtualList
      rows={rows}
      height={height}
      {...(active >= 0 ? { reveal: active } : {})}
      attributes={{
        class: 'marlnb-runs-list',
        role: 'tree',
        tabIndex: 0,
        'aria-label': props.label,
        'aria-activedescendant': active >= 0 ? `${prefix}-${active}` : undefined,
        onKeyDown
      }}
      render={(row, index) =>
        props.render(row, {
          id: `${prefix}-${index}`,
          role: 'treeitem',
          'aria-selected': index === active,
          onClick: () => {
            onMove(index);
            onOpen(row);
          },
          style: { height: `${height(row)}px` }
        })
      }
    />
  );
}
