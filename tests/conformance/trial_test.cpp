// The frame of the suite, on fakes: a right one passes everything it is asked, a wrong one fails.
#include "verify/trial.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "verify/cases.hpp"

namespace tilewise::verify {
namespace {

using Write = std::function<void(const ForwardTensors&, const AttentionOptions&, RowIndex, OracleRow&)>;

std::int64_t offset_of(const TensorView& view, RowIndex row) {
  return row.b * view.strides[0] + row.h * view.strides[1] + row.i * view.strides[2];
}

// A kernel made of the naive formula; `distort` may change a row before it is stored.
Subject fake(Write distort = nullptr) {
  Subject subject;
  subject.name = "fake";
  subject.refusal = [](const ForwardTensors&, const AttentionOptions&) { return std::string(); };
  subject.workspace = [](const ForwardTensors&, const AttentionOptions&, const ExecutionOptions&) {
    return std::size_t{0};
  };
  subject.forward = [distort](const ForwardTensors& t, const AttentionOptions& options, const ExecutionOptions&) {
    for (std::int64_t b = 0; b < t.o.shape[0]; ++b) {
      for (std::int64_t h = 0; h < t.o.shape[1]; ++h) {
        for (std::int64_t i = 0; i < t.o.shape[2]; ++i) {
          const RowIndex row{b, h, i};
          OracleRow result = naive_row(t, options, row);
          if (distort) distort(t, options, row, result);
          for (std::size_t d = 0; d < result.o.size(); ++d) {
            store_from_double(t.o.data, t.o.dtype, offset_of(t.o, row) + static_cast<std::int64_t>(d) * t.o.strides[3],
                              result.o[d]);
          }
          if (t.lse.present()) store_from_double(t.lse.data, t.lse.dtype, offset_of(t.lse, row), result.lse);
        }
      }
    }
  };
  return subject;
}

CaseOutcome outcome_of(const Subject& subject, const Body& body, DType dtype = DType::float32) {
  References references;
  return run_case({"test", "case", {dtype}, body}, dtype, subject, references);
}

void usual_check(Trial& t) {
  Call call = t.call({.b = 2, .hq = 2, .hkv = 1, .sq = 9, .sk = 20, .d = 8});
  add_outputs(call, Layout::padded_rows);
  call.mask = t.random_mask({9, 20}, 0.4);
  t.check(call);
}

TEST(Trial, ARightKernelPasses) {
  for (const DType dtype : every_float) {
    const CaseOutcome outcome = outcome_of(fake(), usual_check, dtype);
    EXPECT_TRUE(outcome.passed) << outcome.detail;
  }
}

TEST(Trial, OneWrongElementFails) {
  const Subject subject = fake([](const ForwardTensors&, const AttentionOptions&, RowIndex row, OracleRow& result) {
    if (row.b == 1 && row.h == 1 && row.i == 8) result.o[3] += 1e-5;
  });
  const CaseOutcome outcome = outcome_of(subject, usual_check);
  EXPECT_FALSE(outcome.passed || outcome.skipped);
  EXPECT_NE(outcome.detail.find("b=1, h=1, i=8, column=3"), std::string::npos) << outcome.detail;
}

TEST(Trial, AWrongLseFails) {
  const Subject subject = fake([](const ForwardTensors&, const AttentionOptions&, RowIndex, OracleRow& result) {
    result.lse *= 1 / std::log(2.0);
  });
  EXPECT_NE(outcome_of(subject, usual_check).detail.find("lse"), std::string::npos);
}

TEST(Trial, AnEmptyRowThatIsNearlyZeroFails) {
  const Subject subject = fake([](const ForwardTensors&, const AttentionOptions&, RowIndex, OracleRow& result) {
    if (std::isinf(result.lse)) result.o.assign(result.o.size(), 1e-12);
  });
  const CaseOutcome outcome = outcome_of(subject, [](Trial& t) {
    Call call = t.call({.sq = 4, .sk = 4, .d = 4});
    call.settings.band = {.right = -2, .alignment = Alignment::top_left};
    t.check(call);
  });
  EXPECT_NE(outcome.detail.find("exactly 0"), std::string::npos) << outcome.detail;
}

TEST(Trial, AnUnwrittenElementFails) {
  Subject subject = fake();
  subject.forward = [](const ForwardTensors&, const AttentionOptions&, const ExecutionOptions&) {};
  EXPECT_NE(outcome_of(subject, usual_check).detail.find("was not written"), std::string::npos);
}

TEST(Trial, AWriteBesideTheOutputFails) {
  Subject subject = fake();
  const auto forward = subject.forward;
  for (const std::int64_t beside : {-1, 8}) {  // before the first row, and in the gap after it
    subject.forward = [&](const ForwardTensors& t, const AttentionOptions& options, const ExecutionOptions& execution) {
      forward(t, options, execution);
      store_from_double(t.o.data, t.o.dtype, beside, 0);
    };
    const CaseOutcome outcome = outcome_of(subject, usual_check);
    EXPECT_NE(outcome.detail.find("which is no element of it"), std::string::npos) << outcome.detail;
  }
}

TEST(Trial, ARefusalSkipsWithItsReason) {
  Subject subject = fake();
  subject.refusal = [](const ForwardTensors&, const AttentionOptions&) { return std::string("no masks"); };
  const CaseOutcome outcome = outcome_of(subject, usual_check);
  EXPECT_TRUE(outcome.skipped);
  EXPECT_EQ(outcome.detail, "no masks");
}

TEST(Trial, AnExceptionFails) {
  Subject subject = fake();
  subject.forward = [](const ForwardTensors&, const AttentionOptions&, const ExecutionOptions&) {
    throw std::runtime_error("boom");
  };
  const CaseOutcome outcome = outcome_of(subject, usual_check);
  EXPECT_FALSE(outcome.passed || outcome.skipped);
  EXPECT_NE(outcome.detail.find("boom"), std::string::npos);
}

TEST(Trial, SharedReferencesAreTheSame) {
  References references;
  const Case one{"test", "case", {DType::float32}, usual_check};
  const Subject right = fake();
  EXPECT_TRUE(run_case(one, DType::float32, right, references).passed);
  ASSERT_EQ(references.size(), 1U);
  EXPECT_TRUE(run_case(one, DType::float32, right, references).passed);
  EXPECT_EQ(references.size(), 1U);
}

TEST(Trial, AnAcceptedInvalidCallFails) {
  const Body invalid = [](Trial& t) {
    Call call = t.call({.sq = 3, .sk = 5, .d = 8});
    t.expect_invalid(call, "v");
  };
  EXPECT_NE(outcome_of(fake(), invalid).detail.find("was accepted"), std::string::npos);
  Subject strict = fake();
  strict.forward = [](const ForwardTensors&, const AttentionOptions&, const ExecutionOptions&) {
    throw std::invalid_argument("k: too short");
  };
  EXPECT_NE(outcome_of(strict, invalid).detail.find("does not name v"), std::string::npos);
}

// Most families on the naive formula itself: a case that it fails judges something else than the contract.
TEST(Cases, TheNaiveFormulaPasses) {
  const Subject subject = fake();
  for (const Case& one : all_cases()) {
    const bool in_time = one.family == "band" || one.family == "masks" || one.family == "paged" ||
                         one.family == "nonfinite" || one.family == "lengths" || one.family == "onnx";
    if (!in_time || one.slow || one.name.starts_with("B45") || one.name.starts_with("B78")) continue;
    References references;
    const CaseOutcome outcome = run_case(one, DType::float32, subject, references);
    EXPECT_TRUE(outcome.passed) << one.family << ", " << one.name << ": " << outcome.detail;
  }
}

}  // namespace
}  // namespace tilewise::verify
