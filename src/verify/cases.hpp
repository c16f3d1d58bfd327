#pragma once

// The conformance cases, one file a family or two. A case is a function on a Trial; it runs once per kernel and dtype.

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "verify/trial.hpp"

namespace tilewise::verify {

using Body = std::function<void(Trial&)>;

struct Case {
  std::string family;
  std::string name;
  std::vector<DType> dtypes;
  Body body;
  bool slow = false;     // more than about 100 ms on a scalar kernel
  bool similar = false;  // differs from other cases of its family in sizes or values alone
};

inline const std::vector<DType> every_float{DType::float64, DType::float32, DType::float16, DType::bfloat16};
inline const std::vector<DType> wide_floats{DType::float64, DType::float32};
inline const std::vector<DType> narrow_floats{DType::float16, DType::bfloat16};
inline const std::vector<DType> only_float32{DType::float32};

inline constexpr double infinity = std::numeric_limits<double>::infinity();

// Collects the cases of one family.
class Family {
 public:
  Family(std::vector<Case>& cases, std::string name) : cases_(cases), name_(std::move(name)) {}

  // The case can be marked as similar to others until the next one is added.
  Case& add(std::string name, Body body, const std::vector<DType>& dtypes = every_float, bool slow = false) {
    cases_.push_back({name_, std::move(name), dtypes, std::move(body), slow});
    return cases_.back();
  }
  void add_slow(std::string name, Body body, const std::vector<DType>& dtypes = every_float) {
    add(std::move(name), std::move(body), dtypes, true);
  }

 private:
  std::vector<Case>& cases_;
  std::string name_;
};

void add_plain_cases(std::vector<Case>& cases);
void add_tail_cases(std::vector<Case>& cases);
void add_band_cases(std::vector<Case>& cases);
void add_length_cases(std::vector<Case>& cases);
void add_packed_cases(std::vector<Case>& cases);
void add_paged_cases(std::vector<Case>& cases);
void add_mask_cases(std::vector<Case>& cases);
void add_bias_cases(std::vector<Case>& cases);
void add_gqa_cases(std::vector<Case>& cases);
void add_layout_cases(std::vector<Case>& cases);
void add_head_dim_cases(std::vector<Case>& cases);
void add_numeric_cases(std::vector<Case>& cases);
void add_structured_cases(std::vector<Case>& cases);
void add_nonfinite_cases(std::vector<Case>& cases);
void add_isolation_cases(std::vector<Case>& cases);
void add_sink_cases(std::vector<Case>& cases);
void add_alibi_cases(std::vector<Case>& cases);
void add_softcap_cases(std::vector<Case>& cases);
void add_dropout_cases(std::vector<Case>& cases);
void add_size_cases(std::vector<Case>& cases);
void add_large_offset_cases(std::vector<Case>& cases);
void add_invariant_cases(std::vector<Case>& cases);
void add_determinism_cases(std::vector<Case>& cases);
void add_onnx_cases(std::vector<Case>& cases);
void add_model_cases(std::vector<Case>& cases);

// All of them, in a fixed order; names are unique within a family.
const std::vector<Case>& all_cases();
std::vector<std::string> family_names();

// Runs one case; never throws.
struct CaseOutcome {
  bool passed = false;
  bool skipped = false;
  std::string detail;
  double max_error = 0;
  double rel_l2_error = 0;
  double budget_share = 0;
};
CaseOutcome run_case(const Case& one, DType dtype, const Subject& subject, References& references);

}  // namespace tilewise::verify
