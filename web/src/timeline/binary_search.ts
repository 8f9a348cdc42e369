/** The first index from `low` up to `high` at which a condition holds that holds for all later ones, too; else `high`. */
export function firstWhere(low: number, high: number, holds: (at: number) => boolean): number {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
