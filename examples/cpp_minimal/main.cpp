// Causal attention of one head over four positions, checked against the definition.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include <tilewise/attention.hpp>

int main() {
  constexpr int n = 4;
  constexpr int d = 2;
  const std::vector<float> q = {1, 0, 0, 1, 1, 1, -1, 2};  // [n, d], row by row; k and v alike
  const std::vector<float> k = {1, 2, 0, 1, -1, 0, 2, 1};
  const std::vector<float> v = {1, 10, 2, 20, 3, 30, 4, 40};
  std::vector<float> o(n * d);
  std::vector<float> lse(n);

  const auto shaped = [](auto* data) {  // [batch, heads, positions, head_dim]
    return tilewise::contiguous_view(data, tilewise::DType::float32, {1, 1, n, d});
  };
  tilewise::ForwardTensors tensors{shaped(q.data()), shaped(k.data()), shaped(v.data()), shaped(o.data())};
  tensors.lse = tilewise::contiguous_view(lse.data(), tilewise::DType::float32, {1, 1, n});
  tilewise::AttentionOptions options;
  options.band.causal = true;
  tilewise::attention_forward(tensors, options);

  std::printf("tilewise %s, kernel %s\n", tilewise::version(), tilewise::explain(tensors, options).chosen.c_str());
  double largest_error = 0;
  for (int i = 0; i < n; ++i) {
    double sum = 0;
    double expected[d] = {};
    for (int j = 0; j <= i; ++j) {
      const double score = (q[i * d] * k[j * d] + q[i * d + 1] * k[j * d + 1]) / std::sqrt(2.0);
      sum += std::exp(score);
      for (int c = 0; c < d; ++c) expected[c] += std::exp(score) * v[j * d + c];
    }
    for (int c = 0; c < d; ++c) largest_error = std::max(largest_error, std::abs(o[i * d + c] - expected[c] / sum));
    largest_error = std::max(largest_error, std::abs(lse[i] - std::log(sum)));
    std::printf("position %d: o = (%.5f, %.5f), lse = %.5f\n", i, o[i * d], o[i * d + 1], lse[i]);
  }

  options.scale = NAN;  // errors are exceptions, thrown before anything is written
  bool refused = false;
  try {
    tilewise::attention_forward(tensors, options);
  } catch (const std::invalid_argument& error) {
    std::printf("refused as it should be: %s\n", error.what());
    refused = true;
  }
  std::printf("largest difference from the definition: %.1e\n", largest_error);
  return refused && largest_error < 1e-5 ? 0 : 1;
}
