/* The error rate of a stream at all times at once, from two counts: service/learners/confidence.py has the proof.
   For fixed λ, e^{λS}/(1−p+pe^λ)^t is at most a martingale; a mixture of those stays below 1/δ with probability 1−δ. */

const LAMBDAS = [];
for (let j = 3; j > -17; j--) LAMBDAS.push(2 ** j, -(2 ** j));
const EXPM1 = LAMBDAS.map(Math.expm1), WEIGHT = -Math.log(LAMBDAS.length);

function logMixture(observed, mistakes, p) {
  const terms = LAMBDAS.map((lambda, i) => lambda * mistakes - observed * Math.log1p(p * EXPM1[i]));
  const top = Math.max(...terms);
  return top + Math.log(terms.reduce((sum, each) => sum + Math.exp(each - top), 0)) + WEIGHT;
}

function bound(observed, mistakes, inside, outside, limit) {
  if (logMixture(observed, mistakes, outside) < limit) return outside;
  while (Math.abs(outside - inside) > 1e-5) {
    const middle = (inside + outside) / 2;
    if (logMixture(observed, mistakes, middle) >= limit) outside = middle;
    else inside = middle;
  }
  return outside;
}

/** {low, high} of the error rate, with probability `level` at all times together */
export function errorRate(observed, mistakes, level = 0.95) {
  if (!observed) return { low: 0, high: 1 };
  const limit = -Math.log1p(-level), rate = mistakes / observed;
  return { low: bound(observed, mistakes, rate, 0, limit), high: bound(observed, mistakes, rate, 1, limit) };
}
