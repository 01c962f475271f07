// Number formats: the nearest number of float16, float32 and float64, and where exp ends in each.

const numberFormats = {
  float16: { rounded: toFloat16, end: Math.log(65504) },
  float32: { rounded: Math.fround, end: Math.log(3.4028234663852886e38) },
  float64: { rounded: (value) => value, end: Math.log(Number.MAX_VALUE) },
};

/** The nearest float16: 11 bits from 2⁻¹⁴ on, steps of 2⁻²⁴ below, infinite from 65520 on; ties go to the even one. */
function toFloat16(value) {
  if (!Number.isFinite(value) || value === 0) return value;
  const size = Math.abs(value);
  if (size >= 65520) return Math.sign(value) * Infinity;
  const step = 2 ** (Math.max(Math.floor(Math.log2(size)), -14) - 10);
  const below = Math.floor(size / step);
  const over = size / step - below;
  return Math.sign(value) * step * (below + (over > 0.5 || (over === 0.5 && below % 2) ? 1 : 0));
}
