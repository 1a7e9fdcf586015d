import type { ComponentChildren, HTMLAttributes, JSX } from 'preact';
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';

const OVERSCAN_PX = 200;

/** Where each row begins, and after the last one where it ends. */
export function rowOffsets<Row>(rows: readonly Row[], height: (row: Row) => number): number[] {
  const offsets = [0];
  for (const row of rows) {
    offsets.push((offsets[offsets.length - 1] ?? 0) + height(row));
  }
  return offsets;
}

/** Which rows are in view, with a few more at either end: `[first, end)`. */
export function visibleRange(offsets: readonly number[], top: number, height: number): [number, number] {
  const first = Math.max(0, countBelow(offsets, top - OVERSCAN_PX) - 1);
  const end = Math.min(offsets.length - 1, countBelow(offsets, top + height + OVERSCAN_PX));
  return [first, Math.max(first, end)];
}

function countBelow(sorted: readonly number[], limit: number): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] ?? 0) <= limit) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/** Rows of which only those in view are in the page, however many there are. */
export function VirtualList<Row>(props: {
  rows: readonly Row[];
  /** In pixels; the same function from one drawing to the next. */
  height: (row: Row) => number;
  render: (row: Row, index: number) => ComponentChildren;
  header?: ComponentChildren;
  /** Of the box that scrolls, as its role and what keys do. */
  attributes?: HTMLAttributes<HTMLDivElement>;
  /** A row that must be in view, as the focused one. */
  reveal?: number;
}): JSX.Element {
  // closures must not hold `props`: the effect's is kept, and with it the first header, its neighbours and their elements
  const { rows, height, render, header, attributes, reveal } = props;
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const offsets = useMemo(() => rowOffsets(rows, height), [rows, height]);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) {
      return undefined;
    }
    const measure = (): void => setView({ top: element.scrollTop, height: element.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    measure();
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    const element = box.current;
    const [start, end] = [offsets[reveal ?? -1], offsets[(reveal ?? -2) + 1]];
    if (!element || start === undefined || end === undefined) {
      return;
    }
    if (start < element.scrollTop) {
      element.scrollTop = start;
    } else if (end > element.scrollTop + element.clientHeight) {
      element.scrollTop = end - element.clientHeight;
    }
  }, [reveal, offsets]);
  const [first, end] = visibleRange(offsets, view.top, view.height);
  return (
    <div
      role="presentation"
      {...attributes}
      class={`marlnb-virtual-list ${(attributes?.class as string | undefined) ?? ''}`}
      ref={box}
      onScroll={event => setView({ top: event.currentTarget.scrollTop, height: event.currentTarget.clientHeight })}
    >
      {header}
      <div
        role="presentation"
        class="marlnb-virtual-list-rows"
        style={{ height: `${offsets[offsets.length - 1] ?? 0}px` }}
      >
        <div role="presentation" style={{ transform: `translateY(${offsets[first] ?? 0}px)` }}>
          {rows.slice(first, end).map((row, index) => render(row, first + index))}
        </div>
      </div>
    </div>
  );
}
