#include "fuzz/faults.hpp"

#include <array>
#include <cmath>
#include <limits>

namespace tilewise::fuzz {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t far = std::numeric_limits<std::int64_t>::max();

// A fault changes the call and returns the argument that is now wrong, or nothing when it does not apply.
using Fault = const char* (*)(Choices&, FuzzedProblem&, FaultyCall&);

template <class View>
bool has_elements(const View& view) {
  for (int d = 0; d < view.rank; ++d) {
    if (view.shape[static_cast<std::size_t>(d)] == 0) return false;
  }
  return view.present();
}

template <class View>
View& moved(View& view, std::ptrdiff_t bytes) {
  view.data = reinterpret_cast<decltype(view.data)>(reinterpret_cast<std::uintptr_t>(view.data) +
                                                    static_cast<std::uintptr_t>(bytes));
  return view;
}

// The tensors of the call itself.
struct Named {
  const char* name;
  ConstTensorView* view;
};
Named any_input(Choices& choices, FaultyCall& call) {
  const std::array<Named, 3> inputs{{{"q", &call.tensors.q}, {"k", &call.tensors.k}, {"v", &call.tensors.v}}};
  return choices.pick(inputs);
}

constexpr std::array<Fault, 37> faults{
    [](Choices& c, FuzzedProblem&, FaultyCall& f) -> const char* {
      const Named input = any_input(c, f);
      *input.view = {};
      return input.name;
    },
    [](Choices& c, FuzzedProblem&, FaultyCall& f) -> const char* {
      const Named input = any_input(c, f);
      input.view->rank = static_cast<int>(c.pick(std::array<int, 5>{3, 0, 1, 5, 100}));
      return input.name;
    },
    [](Choices& c, FuzzedProblem&, FaultyCall& f) -> const char* {
      const Named input = any_input(c, f);
      input.view->dtype = DType::boolean;
      return input.name;
    },
    [](Choices& c, FuzzedProblem&, FaultyCall& f) -> const char* {
      const Named input = any_input(c, f);
      input.view->shape[static_cast<std::size_t>(c.below(4))] = -1 - c.below(3);
      return input.name;
    },
    [](Choices& c, FuzzedProblem&, FaultyCall& f) -> const char* {
      const Named input = any_input(c, f);
      if (!has_elements(*input.view)) return nullptr;
      input.view->data = nullptr;
      return input.name;
    },
    [](Choices& c, FuzzedProblem&, FaultyCall& f) -> const char* {
      const Named input = any_input(c, f);
      moved(*input.view, 1);
      return input.name;
    },
    [](Choices& c, FuzzedProblem&, FaultyCall& f) -> const char* {
      const Named input = any_input(c, f);
      if (!has_elements(*input.view)) return nullptr;
      const auto d = static_cast<std::size_t>(c.below(4));
      if (input.view->shape[d] < 2) return nullptr;
      input.view->strides[d] = c.pick(std::array<std::int64_t, 4>{far, -far, -far - 1, far / 2});
      return input.name;
    },
    [](Choices&, FuzzedProblem&, FaultyCall& f) -> const char* {
      ++f.tensors.k.shape[3];
      f.tensors.k.strides[3] = 0;
      return "k";
    },
    [](Choices& c, FuzzedProblem&, FaultyCall& f) -> const char* {
      const auto d = static_cast<std::size_t>(c.below(3));
      ++f.tensors.v.shape[d];
      f.tensors.v.strides[d] = 0;
      return "v";
    },
    [](Choices&, FuzzedProblem&, FaultyCall& f) -> const char* {
      if (f.tensors.q.shape[1] == 0) return nullptr;
      for (ConstTensorView* view : {&f.tensors.k, &f.tensors.v}) {
        view->shape[1] = f.tensors.q.shape[1] + 1;
        view->strides[1] = 0;
      }
      return "k";
    },
    [](Choices& c, FuzzedProblem&, FaultyCall& f) -> const char* {
      ++f.tensors.o.shape[static_cast<std::size_t>(c.below(4))];
      return "o";
    },
    [](Choices& c, FuzzedProblem&, FaultyCall& f) -> const char* {
      const auto d = static_cast<std::size_t>(c.below(4));
      if (!has_elements(f.tensors.o) || f.tensors.o.shape[d] < 2) return nullptr;
      f.tensors.o.strides[d] = 0;
      return "o";
    },
    [](Choices& c, FuzzedProblem&, FaultyCall& f) -> const char* {
      const Named input = any_input(c, f);
      if (!has_elements(f.tensors.o) || !has_elements(*input.view)) return nullptr;
      f.tensors.o.data = const_cast<void*>(input.view->data);
      return "o";
    },
    [](Choices&, FuzzedProblem&, FaultyCall& f) -> const char* {
      if (!f.tensors.lse.present()) return nullptr;
      f.tensors.lse.rank = 2;
      return "lse";
    },
    [](Choices&, FuzzedProblem&, FaultyCall& f) -> const char* {
      if (!f.tensors.lse.present()) return nullptr;
      f.tensors.lse.dtype = DType::boolean;
      return "lse";
    },
    [](Choices&, FuzzedProblem&, FaultyCall& f) -> const char* {
      if (!f.tensors.lse.present() || !has_elements(f.tensors.lse) || !has_elements(f.tensors.o)) return nullptr;
      f.tensors.lse.data = f.tensors.o.data;
      return "lse";
    },
    [](Choices& c, FuzzedProblem&, FaultyCall& f) -> const char* {
      const Named input = any_input(c, f);
      if (input.view == &f.tensors.q) return nullptr;
      input.view->device = {DeviceKind::cpu, 1};
      return input.name;
    },
    [](Choices& c, FuzzedProblem&, FaultyCall& f) -> const char* {
      f.options.scale = c.pick(std::array<double, 3>{nan_value, infinity, -infinity});
      return "scale";
    },
    [](Choices& c, FuzzedProblem&, FaultyCall& f) -> const char* {
      f.options.softcap = c.pick(std::array<double, 6>{nan_value, infinity, -infinity, 0, -1, 5e-324});
      return "softcap";
    },
    [](Choices& c, FuzzedProblem&, FaultyCall& f) -> const char* {
      f.options.band.causal = true;
      f.options.band.right = c.integer();
      return "right";
    },
    [](Choices& c, FuzzedProblem&, FaultyCall& f) -> const char* {
      f.options.band.alignment = Alignment::top_left;
      f.options.band.delta = c.integer();
      return "delta";
    },
    [](Choices& c, FuzzedProblem& p, FaultyCall& f) -> const char* {
      if (p.call.q.shape()[2] == p.kv_rows) return nullptr;
      f.options.band = {.left = c.integer()};
      return "alignment";
    },
    [](Choices& c, FuzzedProblem&, FaultyCall& f) -> const char* {
      if (!f.options.mask.present()) return nullptr;
      if (c.one_in(2)) {
        f.options.mask.rank = 0;
      } else {
        f.options.mask.dtype = DType::float32;
      }
      return "mask";
    },
    [](Choices& c, FuzzedProblem&, FaultyCall& f) -> const char* {
      if (!f.options.mask.present()) return nullptr;
      const auto d = static_cast<std::size_t>(c.below(f.options.mask.rank));
      f.options.mask.shape[d] += 2 + c.below(200);
      f.options.mask.strides[d] = 0;
      return "mask";
    },
    [](Choices& c, FuzzedProblem&, FaultyCall& f) -> const char* {
      if (!f.options.bias.present()) return nullptr;
      f.options.bias.dtype = c.one_in(2) ? DType::boolean : DType::int32;
      return "bias";
    },
    [](Choices&, FuzzedProblem&, FaultyCall& f) -> const char* {
      if (!f.options.alibi_slopes.present()) return nullptr;
      const auto last = static_cast<std::size_t>(f.options.alibi_slopes.rank - 1);
      ++f.options.alibi_slopes.shape[last];
      f.options.alibi_slopes.strides[last] = 0;
      return "alibi_slopes";
    },
    [](Choices&, FuzzedProblem&, FaultyCall& f) -> const char* {
      if (!f.options.sinks.present()) return nullptr;
      f.options.sinks.dtype = DType::boolean;
      return "sinks";
    },
    [](Choices& c, FuzzedProblem& p, FaultyCall& f) -> const char* {
      if (!has_elements(f.options.q_lengths)) return nullptr;
      p.call.q_lengths.set_bits(c.below(f.options.q_lengths.shape[0]), c.one_in(2) ? ~std::uint64_t{0} : 1 << 20);
      return "q_lengths";
    },
    [](Choices& c, FuzzedProblem& p, FaultyCall& f) -> const char* {
      if (!has_elements(f.options.kv_lengths)) return nullptr;
      p.call.kv_lengths.set_bits(c.below(f.options.kv_lengths.shape[0]), c.one_in(2) ? ~std::uint64_t{0} : 1 << 20);
      return "kv_lengths";
    },
    [](Choices& c, FuzzedProblem& p, FaultyCall& f) -> const char* {
      if (!f.options.cu_q.present()) return nullptr;
      const std::int64_t n = c.below(f.options.cu_q.shape[0]);
      p.call.cu_q.set_bits(n, c.one_in(2) ? ~std::uint64_t{0} : 1 << 20);
      return "cu_q";
    },
    [](Choices& c, FuzzedProblem& p, FaultyCall& f) -> const char* {
      if (!f.options.cu_k.present()) return nullptr;
      const std::int64_t n = c.below(f.options.cu_k.shape[0]);
      p.call.cu_k.set_bits(n, c.one_in(2) ? ~std::uint64_t{0} : 1 << 20);
      return "cu_k";
    },
    [](Choices& c, FuzzedProblem& p, FaultyCall& f) -> const char* {
      if (!has_elements(f.options.block_table)) return nullptr;
      const std::int64_t b = c.below(f.options.block_table.shape[0]);
      if (p.call.kv_lengths.get(b) < 1) return nullptr;
      p.call.block_table.set_bits(b * f.options.block_table.shape[1],
                                  c.one_in(2) ? ~std::uint64_t{0} : static_cast<std::uint64_t>(f.tensors.k.shape[0]));
      return "block_table";
    },
    [](Choices& c, FuzzedProblem&, FaultyCall& f) -> const char* {
      f.options.dropout = Dropout{c.pick(std::array<double, 5>{nan_value, -0.1, 1.0000001, infinity, -infinity}), 1, 0};
      return "dropout";
    },
    [](Choices& c, FuzzedProblem&, FaultyCall& f) -> const char* {
      f.execution.max_threads = static_cast<int>(-1 - c.below(100));
      return "max_threads";
    },
    [](Choices&, FuzzedProblem&, FaultyCall& f) -> const char* {
      static ParallelFor without_function{nullptr, 1, nullptr};
      f.execution.parallel_for = &without_function;
      return "parallel_for";
    },
    [](Choices& c, FuzzedProblem&, FaultyCall& f) -> const char* {
      alignas(64) static std::array<std::byte, 128> memory;
      f.execution.workspace = {memory.data() + 1 + c.below(63), std::size_t{1} << 60};
      return "workspace";
    },
    [](Choices&, FuzzedProblem&, FaultyCall& f) -> const char* {
      f.execution.kernel = "no.such.kernel";
      return "kernel";
    },
};

}  // namespace

std::optional<FaultyCall> with_fault(Choices& choices, FuzzedProblem& problem) {
  FaultyCall call{problem.tensors(), problem.call.options(), {}, {}};
  const Fault fault = choices.pick(faults);
  const char* argument = fault(choices, problem, call);
  if (argument == nullptr) return {};
  call.argument = argument;
  return call;
}

}  // namespace tilewise::fuzz
