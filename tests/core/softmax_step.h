#pragma once

// The functions of the recurrence by number, so that a target hands all of them to the rules through one entry point.
// Inputs and outputs of each, in order, are listed; a Rows is two of them, m and l. Plain enough for CUDA sources.

enum class SoftmaxStep {
  add,            // a, b -> a + b
  sub,            // a, b -> a - b
  mul,            // a, b -> a * b
  div,            // a, b -> a / b
  neg,            // a -> -a
  abs,            // a -> |a|
  max,            // a, b -> maximum
  min,            // a, b -> minimum
  exp2,           // x -> 2^x
  log2,           // x -> log2(x)
  tanh,           // x -> tanh(x)
  select_equal,   // a, b, yes, no -> a == b ? yes : no
  select_finite,  // x, yes, no -> x is finite ? yes : no
  constants,      // -> zero, one, lowest, highest
  units,          // -> log2_e, ln2
  weight,         // score, m -> weight
  no_keys,        // -> m, l
  sink_only,      // logit -> m, l
  grow,           // m, l, block_max -> m, l, alpha
  add_sum,        // m, l, sum -> m, l
  merge,          // m_a, l_a, m_b, l_b -> m, l, w_a, w_b
  inverse_sum,    // m, l -> 1 / l
  lse,            // m, l -> log-sum-exp
  to_log2_units,  // x -> x * log2(e)
  softcapped,     // s, cap -> cap * tanh(s / cap)
  alibi,          // slope, distance -> -slope * |distance|
};

inline constexpr int softmax_step_arrays = 4;  // inputs and outputs of a step, at most
