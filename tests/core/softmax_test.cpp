// The rules of the recurrence on the scalar vocabulary, float and double.

#include "core/softmax_scalar.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "core/softmax_rows.h"
#include "core/softmax_rules.h"
#include "core/softmax_step.h"
#include "core/softmax_target.h"

#define TW_TARGET
namespace tilewise::core::scalar {
#include "core/softmax_step-inl.h"
}  // namespace tilewise::core::scalar
#undef TW_TARGET

namespace tilewise::softmax_rules {
namespace {

template <class Scalar>
struct ScalarLane {
  using T = Scalar;
  using V = Scalar;
  static V load(const T* from) { return *from; }
  static void store(V v, T* to) { *to = v; }
};

template <class T>
SoftmaxTarget<T> scalar_target() {
  return {sizeof(T) == 4 ? "scalar float" : "scalar double", 1,
          [](SoftmaxStep step, std::size_t n, const T* const* in, T* const* out) {
            for (std::size_t i = 0; i < n; ++i) core::scalar::run_softmax_step<ScalarLane<T>>(step, in, out, i);
          }};
}

template <class T>
class ScalarSoftmax : public testing::Test {
 protected:
  SoftmaxTarget<T> target = scalar_target<T>();
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(ScalarSoftmax, Types);

TYPED_TEST(ScalarSoftmax, Constants) { check_constants(this->target); }
TYPED_TEST(ScalarSoftmax, Arithmetic) { check_arithmetic(this->target); }
TYPED_TEST(ScalarSoftmax, Exp2) { check_exp2(this->target); }
TYPED_TEST(ScalarSoftmax, Log2) { check_log2(this->target); }
TYPED_TEST(ScalarSoftmax, Tanh) { check_tanh(this->target); }
TYPED_TEST(ScalarSoftmax, Weight) { check_weight(this->target); }
TYPED_TEST(ScalarSoftmax, NoKeysAndSinks) { check_no_keys_and_sinks(this->target); }
TYPED_TEST(ScalarSoftmax, Grow) { check_grow(this->target); }
TYPED_TEST(ScalarSoftmax, NanTravels) { check_nan_travels(this->target); }
TYPED_TEST(ScalarSoftmax, Merge) { check_merge_table(this->target); }
TYPED_TEST(ScalarSoftmax, Results) { check_results(this->target); }
TYPED_TEST(ScalarSoftmax, ToLog2Units) { check_to_log2_units(this->target); }
TYPED_TEST(ScalarSoftmax, Softcapped) { check_softcapped(this->target); }
TYPED_TEST(ScalarSoftmax, Alibi) { check_alibi(this->target); }
TYPED_TEST(ScalarSoftmax, Rows) { check_rows(this->target); }
TYPED_TEST(ScalarSoftmax, MergeLaws) { check_merge_laws(this->target); }
TYPED_TEST(ScalarSoftmax, FinishedParts) { check_finished_parts(this->target); }

}  // namespace
}  // namespace tilewise::softmax_rules
