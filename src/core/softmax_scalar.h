#pragma once

// The recurrence on float and double: tilewise::core::scalar::{Rows, grow, merge, lse, ...}.

#include "core/ops_scalar.h"

#define TW_TARGET
namespace tilewise {
namespace core {
namespace scalar {
#include "core/row_softmax-inl.h"
#include "core/scores-inl.h"
}  // namespace scalar
}  // namespace core
}  // namespace tilewise
#undef TW_TARGET
