/** Whether rows of numbers are linearly independent, as far as doubles tell. */

/** The most sweeps over all pairs of rows; a handful makes rows orthogonal. */
const SWEEPS = 40;

/**
 * Return whether the smallest singular value of a matrix is above rounding, as numpy's `matrix_rank` decides:
 * above 2^-52 times the larger side times the largest one.
 *
 * Pairs of rows are rotated until all are orthogonal; their lengths then are the singular values. It takes some
 * milliseconds for 16 rows, and a second for 256, the most that a table has.
 * Source: Hestenes, "Inversion of matrices by biorthogonalization", J. SIAM 6(1), 1958.
 */
export function areIndependent(matrix: readonly (readonly number[])[]): boolean {
  const rows = matrix.map((row) => Float64Array.from(row));
  const columns = rows[0]!.length;
  if (columns < rows.length) return false;
  for (let rotated = true, sweep = 0; rotated && sweep < SWEEPS; sweep++) {
    rotated = false;
    for (let i = 1; i < rows.length; i++) {
      for (let j = 0; j < i; j++) rotated = rotate(rows[i]!, rows[j]!) || rotated;
    }
  }
  const lengths = rows.map((row) => Math.sqrt(dot(row, row)));
  return Math.min(...lengths) > Math.max(...lengths) * columns * 2 ** -52;
}

/** Turn two rows in their plane until they are orthogonal; return whether they were not. */
function rotate(a: Float64Array, b: Float64Array): boolean {
  const [aa, ab, bb] = [dot(a, a), dot(a, b), dot(b, b)];
  if (ab === 0 || Math.abs(ab) <= 2 ** -52 * Math.sqrt(aa * bb)) return false;
  const zeta = (bb - aa) / (2 * ab);
  const tangent = Math.sign(zeta || 1) / (Math.abs(zeta) + Math.sqrt(1 + zeta * zeta));
  const cosine = 1 / Math.sqrt(1 + tangent * tangent);
  const sine = cosine * tangent;
  for (let i = 0; i < a.length; i++) {
    const [x, y] = [a[i]!, b[i]!];
    a[i] = cosine * x - sine * y;
    b[i] = sine * x + cosine * y;
  }
  return true;
}

function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
}
