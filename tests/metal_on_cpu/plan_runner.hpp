#pragma once

// Executes launch plans (src/metal/launch_plan.hpp) on the bench.

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "api/validate.hpp"
#include "bench.hpp"
#include "check.hpp"
#include "metal/launch_plan.hpp"

namespace tilewise::metal_bench {

// One head, n queries and keys, D = Dv, contiguous, with an LSE.
inline Problem plain_problem(std::size_t n, std::size_t d, bool causal, metal::Gpu gpu, DType dtype) {
  const auto rows = static_cast<std::int64_t>(n);
  const auto columns = static_cast<std::int64_t>(d);
  Problem p;
  p.machine = {DeviceKind::metal, metal::features_of(gpu)};
  p.batch = p.q_heads = p.kv_heads = 1;
  p.q_len = p.kv_len = rows;
  p.head_dim = p.v_dim = columns;
  p.dtype = dtype;
  p.q.dtype = dtype;
  p.q.rank = 4;
  p.q.shape = {1, 1, rows, columns};
  p.q.strides = {rows * columns, rows * columns, columns, 1};
  p.q.alignment = 16;
  p.k = p.v = p.o = p.q;
  p.lse.rank = 3;
  p.lse.shape = {1, 1, rows, 0};
  p.lse.strides = {rows, rows, 1, 0};
  p.scale = 1 / std::sqrt(static_cast<double>(d));
  p.has_right = causal;
  return p;
}

// q, k, v and o of a call in row-major memory, 64-byte aligned.
class AlignedCopies {
 public:
  explicit AlignedCopies(const ForwardTensors& tensors) : tensors_(tensors) {
    const auto copied = [this](auto& view, std::size_t slot, bool fills) {
      std::array<std::int64_t, max_rank> strides{};
      std::int64_t count = 1;
      for (std::size_t d = max_rank; d-- > 0;) {
        strides[d] = count;
        count *= view.shape[d];
      }
      memory_[slot].resize(static_cast<std::size_t>(count) * size_of(view.dtype) / sizeof(Line) + 1);
      const ConstTensorView from = view;
      view.data = memory_[slot].data();
      view.strides = strides;
      if (fills)
        each_element(from, [&](std::int64_t flat, const std::byte* element) {
          std::memcpy(bytes(slot) + flat * size(from), element, static_cast<std::size_t>(size(from)));
        });
    };
    copied(tensors_.q, 0, true);
    copied(tensors_.k, 1, true);
    copied(tensors_.v, 2, true);
    copied(tensors_.o, 3, false);
  }
  [[nodiscard]] const ForwardTensors& tensors() const { return tensors_; }
  void store(const TensorView& o) const {
    each_element(o, [&](std::int64_t flat, const std::byte* element) {
      std::memcpy(const_cast<std::byte*>(element), bytes(3) + flat * size(o), static_cast<std::size_t>(size(o)));
    });
  }

 private:
  struct alignas(64) Line {
    std::byte data[64];
  };
  static std::int64_t size(const ConstTensorView& view) { return static_cast<std::int64_t>(size_of(view.dtype)); }
  [[nodiscard]] std::byte* bytes(std::size_t slot) const { return const_cast<std::byte*>(memory_[slot].data()->data); }
  template <class F>
  static void each_element(const ConstTensorView& view, const F& f) {
    std::int64_t flat = 0;
    const auto& n = view.shape;
    for (std::int64_t b = 0; b < n[0]; ++b) {
      for (std::int64_t h = 0; h < n[1]; ++h) {
        for (std::int64_t s = 0; s < n[2]; ++s) {
          for (std::int64_t d = 0; d < n[3]; ++d) {
            const std::int64_t at =
                b * view.strides[0] + h * view.strides[1] + s * view.strides[2] + d * view.strides[3];
            f(flat++, static_cast<const std::byte*>(view.data) + at * size(view));
          }
        }
      }
    }
  }

  ForwardTensors tensors_;
  std::array<std::vector<Line>, 4> memory_;
};

// Element 0 of a role's tensor. Outputs are written through it, inputs only read.
inline void* address_of(metal::Role role, const tilewise::Buffers& buffers, std::vector<std::byte>& scratch) {
  const auto data = [&]() -> const void* {
    switch (role) {
      case metal::Role::none: return nullptr;
      case metal::Role::q: return buffers.q;
      case metal::Role::k: return buffers.k;
      case metal::Role::v: return buffers.v;
      case metal::Role::o: return buffers.o;
      case metal::Role::lse: return buffers.lse;
      case metal::Role::mask: return buffers.mask;
      case metal::Role::bias: return buffers.bias;
      case metal::Role::alibi_slopes: return buffers.alibi_slopes;
      case metal::Role::sinks: return buffers.sinks;
      case metal::Role::q_lengths: return buffers.q_lengths;
      case metal::Role::kv_lengths: return buffers.kv_lengths;
      case metal::Role::cu_q: return buffers.cu_q;
      case metal::Role::cu_k: return buffers.cu_k;
      case metal::Role::block_table: return buffers.block_table;
      case metal::Role::scratch: return scratch.data();
    }
    return nullptr;
  };
  return const_cast<void*>(data());
}

inline Launch launch_of(const metal::KernelLaunch& planned, const tilewise::Buffers& buffers,
                        std::vector<std::byte>& scratch) {
  Launch launch;
  launch.source = std::filesystem::path(TW_SRC_DIR "/metal/kernels") / planned.source;  // an absolute source stays
  launch.function = planned.function;
  launch.constants = planned.constants;
  for (const metal::BoundBuffer& bound : planned.buffers) {
    static const char* const names[] = {"none", "q",    "k",           "v",      "o",         "lse",
                                        "mask", "bias", "slopes",      "sinks",  "q_lengths", "kv_lengths",
                                        "cu_q", "cu_k", "block_table", "scratch"};
    Buffer buffer;
    buffer.index = bound.index;
    buffer.role = names[static_cast<std::size_t>(bound.role)];
    buffer.bytes = static_cast<std::size_t>(bound.end - bound.begin);
    auto* const element_0 = static_cast<std::byte*>(address_of(bound.role, buffers, scratch));
    const bool is_scratch = bound.role == metal::Role::scratch;
    buffer.data = buffer.bytes > 0 ? element_0 + bound.begin : nullptr;
    buffer.offset = is_scratch ? 0 : static_cast<std::size_t>(-bound.begin);
    // What lies between the elements of a strided output belongs to others: it is carried over, not poisoned.
    buffer.access = !bound.is_written ? Access::input : is_scratch ? Access::output : Access::in_out;
    launch.buffers.push_back(buffer);
  }
  launch.scalars.push_back({planned.scalars_index, planned.scalars});
  launch.groups = {planned.groups[0], planned.groups[1], planned.groups[2]};
  launch.threads = {planned.threads[0], planned.threads[1], planned.threads[2]};
  return launch;
}

// Runs a plan's launches in every schedule. Empty: no finding, the same bits, threadgroup memory as planned.
inline std::string run_plan_in_all_schedules(const metal::LaunchPlan& plan, const tilewise::Buffers& buffers,
                                             Mode mode) {
  std::vector<std::byte> scratch(plan.scratch_bytes, std::byte{0xff});
  for (const metal::KernelLaunch& planned : plan.launches) {
    const Launch launch = launch_of(planned, buffers, scratch);
    std::vector<std::vector<std::byte>> first;
    for (std::size_t s = 0; s < schedules().size(); ++s) {
      const std::string where = std::string(planned.function) + ", schedule " + std::to_string(s) + ": ";
      const Result result = run(launch, schedules()[s], mode);
      if (!result.findings.empty()) return where + text_of(result.findings);
      if (result.threadgroup_bytes != planned.threadgroup_bytes) {
        return where + std::to_string(result.threadgroup_bytes) + " bytes of threadgroup memory, planned are " +
               std::to_string(planned.threadgroup_bytes);
      }
      std::size_t i = 0;
      for (const Buffer& buffer : launch.buffers) {
        if (buffer.access != Access::output && buffer.access != Access::in_out) continue;
        const auto* const data = static_cast<const std::byte*>(buffer.data);
        if (s == 0) {
          first.emplace_back(data, data + buffer.bytes);
        } else if (buffer.bytes > 0 && std::memcmp(first[i].data(), data, buffer.bytes) != 0) {
          std::size_t byte = 0;
          while (first[i][byte] == data[byte]) ++byte;
          return where + "byte " + std::to_string(byte) + " of " + buffer.role + " differs from schedule 0";
        }
        ++i;
      }
    }
  }
  return {};
}

}  // namespace tilewise::metal_bench
