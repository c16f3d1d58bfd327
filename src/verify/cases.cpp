#include "verify/cases.hpp"

#include <algorithm>
#include <exception>

namespace tilewise::verify {

const std::vector<Case>& all_cases() {
  static const std::vector<Case> cases = [] {
    std::vector<Case> all;
    add_plain_cases(all);
    add_tail_cases(all);
    add_band_cases(all);
    add_length_cases(all);
    add_packed_cases(all);
    add_paged_cases(all);
    add_mask_cases(all);
    add_bias_cases(all);
    add_gqa_cases(all);
    add_layout_cases(all);
    add_head_dim_cases(all);
    add_numeric_cases(all);
    add_structured_cases(all);
    add_nonfinite_cases(all);
    add_isolation_cases(all);
    add_sink_cases(all);
    add_alibi_cases(all);
    add_softcap_cases(all);
    add_dropout_cases(all);
    add_size_cases(all);
    add_large_offset_cases(all);
    add_invariant_cases(all);
    add_determinism_cases(all);
    add_onnx_cases(all);
    add_model_cases(all);
    return all;
  }();
  return cases;
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Case& one : all_cases()) {
    if (std::find(names.begin(), names.end(), one.family) == names.end()) names.push_back(one.family);
  }
  return names;
}

CaseOutcome run_case(const Case& one, DType dtype, const Subject& subject, References& references) {
  CaseOutcome outcome;
  Trial trial(subject, dtype, seed_of(one.family + one.name + name_of(dtype)), references);
  try {
    one.body(trial);
    outcome.passed = true;
  } catch (const CaseSkipped& skip) {
    outcome.skipped = true;
    outcome.detail = skip.what();
  } catch (const CaseFailed& failure) {
    outcome.detail = failure.what();
  } catch (const std::exception& error) {
    outcome.detail = std::string("unexpected exception: ") + error.what();
  }
  outcome.max_error = trial.max_error();
  outcome.rel_l2_error = trial.rel_l2_error();
  outcome.budget_share = trial.budget_share();
  return outcome;
}

}  // namespace tilewise::verify
