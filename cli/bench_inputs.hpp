#pragma once

// The tensors of a benchmark problem: N(0, 1) from a fixed seed, 64-byte aligned. No lse: the libraries that ours is
// compared with return o alone.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "grid.hpp"
#include "tilewise/attention.hpp"

namespace tilewise::cli {

// Row-major memory of its own at an address that is a multiple of 64.
class AlignedTensor {
 public:
  AlignedTensor() = default;  // absent
  AlignedTensor(DType dtype, std::vector<std::int64_t> shape);

  [[nodiscard]] TensorView view() const { return view_; }
  [[nodiscard]] std::int64_t element_count() const { return elements_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
  };
  std::unique_ptr<std::byte[], Free> memory_;
  TensorView view_{};
  std::int64_t elements_ = 0;
};

struct BenchInputs {
  AlignedTensor q, k, v, o, fused, sinks, mask, bias, lengths;
  ForwardTensors tensors;
  AttentionOptions options;
};

// Bytes that make_inputs would allocate.
double input_bytes(const GridProblem& problem);

BenchInputs make_inputs(const GridProblem& problem);

// The same call without data, for explain.
struct BenchShapes {
  ForwardTensors tensors;
  AttentionOptions options;
};
BenchShapes shapes_of(const GridProblem& problem);

}  // namespace tilewise::cli
