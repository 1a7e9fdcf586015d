/**
 * Exponential moving average without the bias of its start: `s_t = sum_k w^k y_{t-k} / sum_k w^k`.
 * A weight of 0 changes nothing.
 */
export function smooth(values: readonly number[], weight: number): number[] {
  if (weight === 0) {
    return [...values];
  }
  let [sum, total] = [0, 0];
  return values.map(value => {
    sum = weight * sum + value;
    total = weight * total + 1;
    return sum / total;
  });
}
