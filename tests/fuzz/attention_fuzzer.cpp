// Any bytes as a forward call. A valid call runs twice, on poisoned outputs, in different ways, and must give the same
// bits, inside the rounding bound of the oracle, and write nothing but its outputs' elements. A kernel that refuses,
// and a call with a fault, must throw what the contract says and leave the outputs alone.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "fuzz/error_bound.hpp"
#include "fuzz/fail.hpp"
#include "fuzz/faults.hpp"
#include "fuzz/problem.hpp"

using namespace tilewise;
using fuzz::FuzzedProblem;
using verify::RowIndex;
using verify::Tensor;

namespace {

// The oracle sees so many rows of a call that it costs about as much as the call itself.
constexpr std::int64_t most_oracle_work = std::int64_t{1} << 18;

constexpr std::byte first_fill{0xA5};
constexpr std::byte second_fill{0x5A};

void fill_outputs(FuzzedProblem& problem, std::byte value) {
  for (Tensor* tensor : {&problem.call.o, &problem.call.lse}) {
    std::fill(tensor->storage().begin(), tensor->storage().end(), value);
  }
}

void expect_untouched(FuzzedProblem& problem, std::byte value, const std::string& when) {
  for (const Tensor* tensor : {&problem.call.o, &problem.call.lse}) {
    const auto& bytes = tensor->storage();
    if (std::any_of(bytes.begin(), bytes.end(), [&](std::byte byte) { return byte != value; })) {
      fuzz::fail(when + " wrote to its outputs");
    }
  }
}

// The bits of the elements; the bytes around them must still be `value`, and are overwritten with zeros here.
std::vector<std::uint64_t> harvest(Tensor& tensor, std::byte value, const char* name) {
  std::vector<std::uint64_t> bits;
  std::vector<std::byte> around = tensor.storage();
  const std::int64_t size = static_cast<std::int64_t>(size_of(tensor.dtype()));
  for (std::int64_t flat = 0; flat < tensor.element_count(); ++flat) {
    bits.push_back(tensor.bits(flat));
    std::int64_t offset = tensor.storage_offset();
    std::int64_t rest = flat;
    for (std::size_t d = tensor.shape().size(); d-- > 0;) {
      offset += rest % tensor.shape()[d] * tensor.strides()[d];
      rest /= tensor.shape()[d];
    }
    std::fill_n(around.begin() + offset * size, size, value);
  }
  if (std::any_of(around.begin(), around.end(), [&](std::byte byte) { return byte != value; })) {
    fuzz::fail(std::string("a byte between the elements of ") + name + " was written");
  }
  return bits;
}

struct Results {
  std::vector<std::uint64_t> o;
  std::vector<std::uint64_t> lse;
};

Results results_of(FuzzedProblem& problem, std::byte fill) {
  return {harvest(problem.call.o, fill, "o"), harvest(problem.call.lse, fill, "lse")};
}

void run_plainly(FuzzedProblem& problem, const std::string& kernel) {
  ExecutionOptions execution;
  execution.kernel = kernel;
  execution.max_threads = 1;
  attention_forward(problem.tensors(), problem.call.options(), execution);
}

// Tasks in reverse order, on worker ids of their own.
void run_in_reverse(void*, std::int64_t tasks, void* arg, void (*task)(void* arg, std::int64_t index, int worker)) {
  for (std::int64_t index = tasks; index-- > 0;) task(arg, index, static_cast<int>(index % 3));
}

struct Free {
  void operator()(void* data) const { std::free(data); }
};

// Through a plan, a workspace of exactly the planned bytes, full of NaN, and other threads.
void run_planned(FuzzedProblem& problem, const std::string& kernel) {
  ParallelFor callers_pool{nullptr, 3, run_in_reverse};
  ExecutionOptions execution;
  execution.kernel = kernel;
  execution.max_threads = problem.threads;
  if (problem.callers_pool) execution.parallel_for = &callers_pool;
  const Plan plan(problem.tensors(), problem.call.options(), execution);
  if (!kernel.empty() && plan.kernel() != kernel) fuzz::fail("forced " + kernel + ", but planned " + plan.kernel());
  void* memory = nullptr;
  if (plan.workspace_size() > 0) {
    if (posix_memalign(&memory, 64, plan.workspace_size()) != 0) throw std::bad_alloc();
    std::memset(memory, 0xFF, plan.workspace_size());
  }
  const std::unique_ptr<void, Free> workspace(memory);
  execution.workspace = {memory, plan.workspace_size()};
  plan.run(problem.tensors(), problem.call.options(), execution);
}

// The kernel that will run: the forced one, unless it refuses, which must then be said and do nothing.
std::string accepted_kernel(FuzzedProblem& problem) {
  ExecutionOptions execution;
  execution.kernel = problem.kernel;
  const Explanation explanation = explain(problem.tensors(), problem.call.options(), execution);
  if (problem.kernel.empty() || explanation.chosen == problem.kernel) return problem.kernel;
  if (!explanation.chosen.empty()) fuzz::fail("forced " + problem.kernel + ", but chose " + explanation.chosen);
  for (const Refusal& refusal : explanation.refused) {
    if (refusal.reason.empty()) fuzz::fail(refusal.kernel + " refuses without a reason");
  }
  fill_outputs(problem, first_fill);
  try {
    run_plainly(problem, problem.kernel);
  } catch (const Unsupported& error) {
    if (std::string_view(error.what()).find(problem.kernel) == std::string_view::npos) {
      fuzz::fail(problem.kernel + " is not named in its refusal: " + error.what());
    }
    expect_untouched(problem, first_fill, "a kernel that refused");
    return {};
  }
  fuzz::fail(problem.kernel + " ran, which explain said it would refuse");
}

void check_rows(FuzzedProblem& problem) {
  const std::vector<std::int64_t>& shape = problem.call.o.shape();
  const std::int64_t rows = shape[0] * shape[1] * shape[2];
  if (rows == 0) return;
  const std::int64_t work = (problem.kv_rows + 1) * (problem.call.q.shape()[3] + shape[3] + 8) * 6;
  const std::int64_t wanted = std::clamp<std::int64_t>(most_oracle_work / work, 2, rows);
  fuzz::ErrorBound bound(problem);
  for (std::int64_t n = 0; n < wanted; ++n) {
    const std::int64_t row = wanted == rows ? n : n * (rows - 1) / (wanted - 1);
    std::vector<double> o;
    for (std::int64_t d = 0; d < shape[3]; ++d) o.push_back(problem.call.o.get(row * shape[3] + d));
    std::optional<double> lse;
    if (problem.call.lse.present()) lse = problem.call.lse.get(row);
    const RowIndex index{row / (shape[1] * shape[2]), row / shape[2] % shape[1], row % shape[2]};
    const std::string wrong = bound.judge(index, o, lse);
    if (wrong.empty()) continue;
    fuzz::fail("row b=" + std::to_string(index.b) + " h=" + std::to_string(index.h) + " i=" + std::to_string(index.i) +
               ": " + wrong);
  }
}

void check_valid(FuzzedProblem& problem) {
  const std::string kernel = accepted_kernel(problem);
  fill_outputs(problem, second_fill);
  run_planned(problem, kernel);
  const Results planned = results_of(problem, second_fill);
  fill_outputs(problem, first_fill);
  run_plainly(problem, kernel);
  const Results plain = results_of(problem, first_fill);
  if (plain.o != planned.o) fuzz::fail("o differs between two runs (or an element was not written)");
  if (plain.lse != planned.lse) fuzz::fail("lse differs between two runs (or an element was not written)");
  check_rows(problem);
}

void check_fault(FuzzedProblem& problem, const fuzz::FaultyCall& call) {
  fill_outputs(problem, first_fill);
  try {
    attention_forward(call.tensors, call.options, call.execution);
  } catch (const std::invalid_argument& error) {
    if (!std::string_view(error.what()).starts_with(call.argument + ": ")) {
      fuzz::fail("a fault in " + call.argument + " is reported as: " + error.what());
    }
    expect_untouched(problem, first_fill, "a call with a fault in " + call.argument);
    return;
  }
  fuzz::fail("a fault in " + call.argument + " was accepted");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Choices choices(std::span(data, size));
  const bool faulty = choices.one_in(8);
  FuzzedProblem problem = fuzz::decode(choices);
  // Shown with a failure, whatever ends the process.
  const bool verbose = std::getenv("TILEWISE_FUZZ_VERBOSE") != nullptr;
  if (verbose) std::fprintf(stderr, "%s\n", fuzz::description(problem).c_str());
  try {
    if (!faulty) {
      check_valid(problem);
    } else if (const auto call = fuzz::with_fault(choices, problem)) {
      check_fault(problem, *call);
    }
  } catch (const std::exception& error) {
    fuzz::fail(std::string("unexpected exception: ") + error.what());
  }
  return 0;
}
